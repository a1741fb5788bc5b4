"""Nobody changes a public name, setting, option, command, metric or message by accident."""

from __future__ import annotations

import bk_spark
from tests.unit import public_interface


def test_nothing_that_others_rely_on_by_name_came_went_or_changed() -> None:
    held = public_interface.HELD.read_text().splitlines()
    now = public_interface.lines()
    assert (sorted(set(held) - set(now)), sorted(set(now) - set(held))) == ([], [])


def test_the_package_lists_its_public_names_and_nothing_else() -> None:
    assert dir(bk_spark) == sorted(bk_spark.__all__)
    assert all(hasattr(bk_spark, name) for name in dir(bk_spark))
