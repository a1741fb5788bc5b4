"""Of each subject of log/ that changes the store: one test of tests/unit again, on a real ZooKeeper.

Whether the real store is what these rely on is the subject of tests/cluster/metadata/test_store.py.
"""

from tests.unit.log.changes.test_claims import test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it
from tests.unit.log.changes.test_commit import test_commits_at_once_all_take_effect_one_after_the_other
from tests.unit.log.changes.test_delete import (
    test_deleting_a_log_deletes_its_ledgers_those_of_old_versions_and_of_running_jobs_too,
)
from tests.unit.log.changes.test_first_jobs import test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first
from tests.unit.log.changes.test_jobs import test_abort_deletes_the_ledgers_of_every_attempt_and_the_job_s_index
from tests.unit.log.changes.test_open_ledgers import test_opening_a_writer_lists_its_ledger_at_the_end_and_raises_the_epoch
from tests.unit.log.changes.test_replacement import (
    test_a_truncation_removes_what_stands_before_a_ledger_whatever_is_appended_meanwhile,
)
from tests.unit.log.stored.test_checkpoint import interval, test_writers_of_one_checkpoint_at_once_do_each_other_no_harm
from tests.unit.log.stream.test_cursors import (
    test_a_cursor_without_a_name_of_its_own_goes_with_the_session_and_a_named_one_stays,
    uid,
)

__all__ = [
    "interval",
    "test_a_cursor_without_a_name_of_its_own_goes_with_the_session_and_a_named_one_stays",
    "test_a_truncation_removes_what_stands_before_a_ledger_whatever_is_appended_meanwhile",
    "test_abort_deletes_the_ledgers_of_every_attempt_and_the_job_s_index",
    "test_commits_at_once_all_take_effect_one_after_the_other",
    "test_deleting_a_log_deletes_its_ledgers_those_of_old_versions_and_of_running_jobs_too",
    "test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it",
    "test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first",
    "test_opening_a_writer_lists_its_ledger_at_the_end_and_raises_the_epoch",
    "test_writers_of_one_checkpoint_at_once_do_each_other_no_harm",
    "uid",
]
