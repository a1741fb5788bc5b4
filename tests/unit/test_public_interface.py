"""Nobody changes a public name, setting, option, command, metric or message by accident."""

from __future__ import annotations

import pydoc

import bk_spark
from tests.unit import public_interface


def test_nothing_that_others_rely_on_by_name_came_went_or_changed() -> None:
    held = public_interface.HELD.read_text().splitlines()
    now = public_interface.lines()
    assert (sorted(set(held) - set(now)), sorted(set(now) - set(held))) == ([], [])


def test_the_package_lists_its_public_names_and_nothing_else() -> None:
    shown, all_names = set(dir(bk_spark)), set(bk_spark.__all__)
    assert all(hasattr(bk_spark, name) for name in shown | all_names)
    assert shown - all_names == {"aio", "errors"}
    assert all(issubclass(getattr(bk_spark, name), bk_spark.BookKeeperError) for name in all_names - shown)
    assert {name for name in all_names - shown if not hasattr(bk_spark.errors, name)} == set()


def test_the_help_of_the_package_is_short_and_begins_with_what_there_is() -> None:
    """Each class in it shows all that it inherits: those of errors alone were 100,000 characters."""
    text = pydoc.render_doc(bk_spark, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert len(text) < 60_000
    head = text[:3_000]
    assert all(name in head for name in dir(bk_spark))
