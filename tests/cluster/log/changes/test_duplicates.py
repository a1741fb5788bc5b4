"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_duplicates import (
    test_an_application_version_that_is_not_above_the_last_is_dropped_with_its_ledgers_and_logged_once,
    test_dropped_duplicates_are_counted_for_each_application,
)

__all__ = [
    "test_an_application_version_that_is_not_above_the_last_is_dropped_with_its_ledgers_and_logged_once",
    "test_dropped_duplicates_are_counted_for_each_application",
]
