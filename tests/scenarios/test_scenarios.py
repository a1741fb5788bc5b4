"""The traces of the main stories are what they were: a change of the protocol is seen in review, line by line."""

from __future__ import annotations

import pytest

from tests.scenarios.stories import DIRECTORY, STORIES, path_of, told


@pytest.mark.parametrize("name", STORIES)
def test_the_story_is_told_as_it_was(name: str) -> None:
    assert told(name) == path_of(name).read_text(), (
        "if this is wanted: python -m tests.scenarios.stories, and read the difference"
    )


def test_every_trace_belongs_to_a_story() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == set(STORIES)
