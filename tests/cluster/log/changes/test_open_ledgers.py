"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.changes.test_open_ledgers import (
    test_a_leader_s_commit_whose_reply_is_lost_is_recognised_as_done,
    test_a_leader_s_roll_in_flight_when_it_is_displaced_never_applies,
    test_an_append_behind_a_live_leader_recovers_its_ledger_first_and_records_its_end,
    test_opening_a_writer_lists_its_ledger_at_the_end_and_raises_the_epoch,
)

__all__ = [
    "test_a_leader_s_commit_whose_reply_is_lost_is_recognised_as_done",
    "test_a_leader_s_roll_in_flight_when_it_is_displaced_never_applies",
    "test_an_append_behind_a_live_leader_recovers_its_ledger_first_and_records_its_end",
    "test_opening_a_writer_lists_its_ledger_at_the_end_and_raises_the_epoch",
]
