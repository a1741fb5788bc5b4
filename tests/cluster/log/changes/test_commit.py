"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_commit import (
    test_a_commit_that_lands_late_in_front_of_its_own_repetition_counts_once,
    test_a_commit_that_was_lost_on_its_way_is_sent_again_and_the_first_one_never_applies,
    test_a_commit_whose_reply_is_lost_is_recognised_after_others_committed_on_top,
    test_a_commit_whose_reply_is_lost_is_recognised_as_done,
    test_a_thousand_ledgers_enter_in_one_commit,
    test_commits_at_once_all_take_effect_one_after_the_other,
)

__all__ = [
    "test_a_commit_that_lands_late_in_front_of_its_own_repetition_counts_once",
    "test_a_commit_that_was_lost_on_its_way_is_sent_again_and_the_first_one_never_applies",
    "test_a_commit_whose_reply_is_lost_is_recognised_after_others_committed_on_top",
    "test_a_commit_whose_reply_is_lost_is_recognised_as_done",
    "test_a_thousand_ledgers_enter_in_one_commit",
    "test_commits_at_once_all_take_effect_one_after_the_other",
]
