"""A few steps of the random programs over directories (tests/soak/directories), which run for hours in ``make soak``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.soak.directories.__main__ import run_round
from tests.soak.directories.bugs import BUGS, package_with
from tests.soak.directories.model import Directory, is_sentence

STEPS = 4


@pytest.mark.nightly(held_by="tests/cluster/local/test_directories.py, tests/cluster/embedded/test_embedded.py")
def test_rows_stay_with_their_directories_through_random_steps(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    folder.mkdir()
    world, found = run_round(1, STEPS, package_with("", tmp_path), folder)
    assert found == ""
    assert sum(world.done.values()) == STEPS


@pytest.mark.parametrize("bug", BUGS)
def test_every_deliberate_bug_still_fits_the_code(bug: str, tmp_path: Path) -> None:
    folder = package_with(bug, tmp_path)
    for name, _, wrong in BUGS[bug]:
        text = (folder / "bk_spark" / name).read_text()
        ast.parse(text)
        assert wrong in text


def test_the_model_tells_missing_foreign_and_doubled_rows() -> None:
    directory = Directory(None, confirmed={"a", "b"}, possible={"c"})
    assert directory.wrong_rows(["a", "b"]) == directory.wrong_rows(["a", "c", "b"]) == ""
    assert "missing: ['b']" in directory.wrong_rows(["a"])
    assert "another directory: ['d']" in directory.wrong_rows(["a", "b", "d"])
    assert "twice: ['a']" in directory.wrong_rows(["a", "a", "b"])


def test_the_model_tells_a_sentence_of_ours_from_an_error_of_the_system() -> None:
    assert is_sentence("ConfigError: data_dir is '/a': another local cluster uses it")
    assert not is_sentence("ConfigError: [Errno 28] No space left on device: '/a'")
    assert not is_sentence("ended with 1")
