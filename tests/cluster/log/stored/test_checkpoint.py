"""Tests of the same name in tests/unit, on a real ZooKeeper."""

from tests.unit.log.stored.test_checkpoint import (
    interval,
    test_a_checkpoint_cut_short_anywhere_is_finished_by_the_next_writer,
    test_the_commit_of_every_so_many_versions_writes_a_checkpoint,
    test_writers_of_one_checkpoint_at_once_do_each_other_no_harm,
)

__all__ = [
    "interval",
    "test_a_checkpoint_cut_short_anywhere_is_finished_by_the_next_writer",
    "test_the_commit_of_every_so_many_versions_writes_a_checkpoint",
    "test_writers_of_one_checkpoint_at_once_do_each_other_no_harm",
]
