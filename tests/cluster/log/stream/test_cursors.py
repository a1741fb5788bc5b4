"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.stream.test_cursors import (
    test_a_cursor_replaces_the_one_of_its_name_and_all_are_listed_by_name,
    test_a_cursor_without_a_name_of_its_own_goes_with_the_session_and_a_named_one_stays,
    uid,
)

__all__ = [
    "test_a_cursor_replaces_the_one_of_its_name_and_all_are_listed_by_name",
    "test_a_cursor_without_a_name_of_its_own_goes_with_the_session_and_a_named_one_stays",
    "uid",
]
