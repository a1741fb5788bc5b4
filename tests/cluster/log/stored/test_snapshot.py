"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.stored.test_snapshot import (
    test_versions_below_the_oldest_one_are_refused_with_the_oldest_and_the_retention,
)

__all__ = [
    "test_versions_below_the_oldest_one_are_refused_with_the_oldest_and_the_retention",
]
