"""A write job is kept alive while a task works for it, or waits (log rule 1)."""

from __future__ import annotations

import threading

import pytest

from bk_spark.errors import BookKeeperError, JobEndedError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.cleanup.orphans import OLDER_THAN_S
from bk_spark.log.write_ledger import REFRESH_S, JobRefresh
from tests.unit.datasource.batches import wait_until

SOON_S = 0.005


class Job:
    """Counts its refreshes; each fails with the next of ``problems``, as long as there are any."""

    def __init__(self, *problems: BookKeeperError) -> None:
        self.refreshed = 0
        self._problems = list(problems)

    def refresh(self) -> None:
        self.refreshed += 1
        if self._problems:
            raise self._problems.pop(0)


def threads() -> int:
    return sum(one.name == "bk_spark job refresh" for one in threading.enumerate())


def test_a_job_is_refreshed_again_and_again_while_its_task_waits_and_not_after_it() -> None:
    job = Job()
    before = threads()
    with JobRefresh(job.refresh, SOON_S) as refresh:
        wait_until(lambda: job.refreshed >= 3)
        refresh.check()
    wait_until(lambda: threads() == before)


def test_a_task_that_fails_leaves_no_thread() -> None:
    before = threads()
    with pytest.raises(RuntimeError), JobRefresh(Job().refresh, SOON_S):
        raise RuntimeError("upstream")
    wait_until(lambda: threads() == before)


def test_a_metadata_store_that_does_not_answer_is_asked_again() -> None:
    job = Job(MetadataUnavailableError("zk://x", "no answer"), MetadataUnavailableError("zk://x", "no answer"))
    with JobRefresh(job.refresh, SOON_S) as refresh:
        wait_until(lambda: job.refreshed >= 4)
        refresh.check()


@pytest.mark.parametrize("end", [JobEndedError("orders", "job"), NoSuchLogError("orders")])
def test_the_task_of_a_job_that_has_ended_learns_it(end: BookKeeperError) -> None:
    job = Job(end)
    before = threads()
    with JobRefresh(job.refresh, SOON_S) as refresh:
        wait_until(lambda: threads() == before)
        with pytest.raises(type(end)):
            refresh.check()
    assert job.refreshed == 1


def test_a_job_is_refreshed_a_hundred_times_before_the_sweep_may_take_it() -> None:
    assert REFRESH_S * 100 <= OLDER_THAN_S
