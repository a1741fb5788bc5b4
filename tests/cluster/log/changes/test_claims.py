"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_claims import (
    test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it,
)

__all__ = [
    "test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it",
]
