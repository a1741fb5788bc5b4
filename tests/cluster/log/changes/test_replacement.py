"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_replacement import (
    test_a_compaction_keeps_its_place_the_rows_and_all_that_others_append_meanwhile,
    test_a_replacement_keeps_its_place_and_all_that_others_append_meanwhile,
    test_a_truncation_removes_what_stands_before_a_ledger_whatever_is_appended_meanwhile,
    test_a_truncation_whose_reply_is_lost_is_recognised_as_done,
)

__all__ = [
    "test_a_compaction_keeps_its_place_the_rows_and_all_that_others_append_meanwhile",
    "test_a_replacement_keeps_its_place_and_all_that_others_append_meanwhile",
    "test_a_truncation_removes_what_stands_before_a_ledger_whatever_is_appended_meanwhile",
    "test_a_truncation_whose_reply_is_lost_is_recognised_as_done",
]
