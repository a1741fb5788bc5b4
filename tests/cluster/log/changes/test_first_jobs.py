"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_first_jobs import (
    test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first,
    test_the_first_commit_makes_the_log_its_head_and_its_version_together,
)

__all__ = [
    "test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first",
    "test_the_first_commit_makes_the_log_its_head_and_its_version_together",
]
