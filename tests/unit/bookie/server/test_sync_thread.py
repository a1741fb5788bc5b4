"""The queue before the disk, group commit, and the thread of the checkpoints.

Ref: docs/rules.md, protocol rule 34; situation 74.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from bk_spark.bookie.server import sync_thread
from bk_spark.bookie.server.sync_thread import (
    LOOK_BYTES,
    LOOK_S,
    MAX_GROUP_S,
    MAX_QUEUED,
    MAX_WAIT_S,
    MIN_LEARNT,
    MIN_QUEUED,
    REQUEST_BYTES,
    WAIT_BELOW_BYTES,
    CheckpointThread,
    GroupWait,
    QueueLength,
    SyncListener,
    SyncThread,
)
from bk_spark.errors import StorageError
from bk_spark.wire.messages import AddRequest, StagedReply, Status

DEADLINE_S = 60.0
BOOKIE_ID = "bookie-1"


class Running:
    """A sync thread over a bookie whose disk can be held up, and the event loop that it belongs to."""

    def __init__(self, harness, maximum_bytes: int = 1 << 20) -> None:
        self.harness = harness
        self.failed: Future[BaseException] = Future()
        self.looks: list[int] = []
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.bookie = harness.start()
        self.sync = self.run(self._make(maximum_bytes))
        self.loop.call_soon_threadsafe(self.sync.start)

    async def _make(self, maximum_bytes: int) -> SyncThread:
        listener = SyncListener(self._look, lambda ledgers: None, self.failed.set_result)
        return SyncThread(self.bookie, maximum_bytes, listener)

    def _look(self) -> None:
        self.looks.append(len(self.looks))

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not is_so():
                    await asyncio.sleep(0.001)

        self.run(wait())

    def request(self, number: int, *, size: int = 10) -> AddRequest:
        return AddRequest(number, BOOKIE_ID, self.harness.key, self.harness.batch(1, number, number, size=size))

    def answer(self, number: int, *, size: int = 10) -> Future[StagedReply]:
        return asyncio.run_coroutine_threadsafe(self.sync.answer(self.request(number, size=size)), self.loop)

    def close(self) -> None:
        self.harness.disk.sync_may_end.set()
        if not self.failed.done():
            self.run(self.sync.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def running(harness):
    made = Running(harness)
    yield made
    made.close()


def test_a_writer_that_is_alone_never_waits_for_others() -> None:
    assert GroupWait(last_count=1, last_sync_s=0.005).seconds(1, REQUEST_BYTES, 0) == 0


def test_a_group_waits_for_as_many_as_came_last_time_for_a_share_of_the_last_sync() -> None:
    wait = GroupWait(last_count=4, last_sync_s=0.008)
    assert wait.seconds(1, REQUEST_BYTES, age_s=0) == pytest.approx(0.002)
    assert wait.seconds(3, REQUEST_BYTES, age_s=0.0015) == pytest.approx(0.0005)
    assert wait.seconds(3, REQUEST_BYTES, age_s=0.003) == 0
    assert wait.seconds(4, REQUEST_BYTES, age_s=0) == 0


def test_a_group_of_large_adds_is_not_kept_waiting_nor_one_after_a_stall() -> None:
    assert GroupWait(last_count=4, last_sync_s=0.008).seconds(1, WAIT_BELOW_BYTES, 0) == 0
    assert GroupWait(last_count=4, last_sync_s=60).seconds(1, REQUEST_BYTES, 0) == MAX_WAIT_S


def test_the_queue_has_as_many_requests_as_a_second_serves_between_a_least_and_a_most() -> None:
    length = QueueLength()
    length.learn(1000, 1.0)
    assert length.most == 1000
    length.learn(1000, 0.1)
    assert length.most == MAX_QUEUED
    length.learn(100, 10.0)
    assert length.most == MIN_QUEUED


def test_a_group_of_few_requests_says_nothing_about_the_queue_unless_it_was_as_long_as_groups_may_be() -> None:
    length = QueueLength()
    length.learn(MIN_LEARNT - 1, 0.9 * MAX_GROUP_S)
    length.learn(0, 1.0)
    assert length.most == MAX_QUEUED
    length.learn(1, MAX_GROUP_S)
    assert length.most == MIN_QUEUED


def test_there_is_room_for_a_second_of_slow_requests_and_what_a_long_group_holds_is_answered_before_the_rest(
    running, monkeypatch
) -> None:
    monkeypatch.setattr(sync_thread, "MAX_GROUP_S", 0.004)
    monkeypatch.setattr(sync_thread, "MAX_QUEUE_S", 0.08)
    monkeypatch.setattr(sync_thread, "MIN_QUEUED", 16)
    stage, sync, syncs, rooms = running.bookie.stage, running.bookie.sync, [], []

    def slow(*request) -> None:
        time.sleep(0.005)
        stage(*request)

    def counted():
        rooms.append(running.sync.has_room)
        syncs.append(sync())
        return syncs[-1]

    running.harness.disk.hold_syncs()
    monkeypatch.setattr(running.bookie, "stage", slow)
    monkeypatch.setattr(running.bookie, "sync", counted)
    first = running.answer(0)
    assert running.harness.disk.sync_begins.wait(DEADLINE_S)
    answers = [running.answer(number) for number in range(1, 41)]
    running.until(lambda: running.sync.queued_bytes > 40 * REQUEST_BYTES)
    running.harness.disk.sync_may_end.set()
    assert {answer.result(DEADLINE_S).status for answer in [first, *answers]} == {Status.OK}
    assert not rooms[1]
    assert rooms[-1]
    assert max(map(len, syncs)) == 1


def test_the_queue_exceeds_its_bound_by_one_request_at_most_however_many_wait(harness, monkeypatch) -> None:
    """Slow syncs: situation 74."""
    size, count, maximum = 1000, 40, 5000
    running = Running(harness, maximum)
    try:
        queued: list[int] = []
        put = running.sync.put

        def counted(*request) -> None:
            put(*request)
            queued.append(running.sync.queued_bytes)

        monkeypatch.setattr(running.sync, "put", counted)
        harness.disk.hold_syncs()
        answers = [running.answer(number, size=size) for number in range(count)]
        assert harness.disk.sync_begins.wait(DEADLINE_S)
        running.until(lambda: running.sync.queued_bytes > maximum)
        assert not any(answer.done() for answer in answers)
        harness.disk.sync_may_end.set()
        assert [answer.result(DEADLINE_S).status for answer in answers] == [Status.OK] * count
        assert max(queued) <= maximum + REQUEST_BYTES + len(running.request(0, size=size).batch.body)
        assert running.sync.queued_bytes == 0
    finally:
        running.close()


def test_one_group_takes_no_more_bytes_than_the_caches_may_exceed_their_size_by(running, monkeypatch) -> None:
    monkeypatch.setattr(sync_thread, "MAX_GROUP_BYTES", 5000)
    syncs = []
    sync = running.bookie.sync
    monkeypatch.setattr(running.bookie, "sync", lambda: syncs.append(sync()) or syncs[-1])
    running.harness.disk.hold_syncs()
    first = running.answer(0)
    assert running.harness.disk.sync_begins.wait(DEADLINE_S)
    answers = [running.answer(number, size=1000) for number in range(1, 31)]
    running.until(lambda: running.sync.queued_bytes > 30 * 1000)
    running.harness.disk.sync_may_end.set()
    assert {answer.result(DEADLINE_S).status for answer in [first, *answers]} == {Status.OK}
    assert max(len(replies) for replies in syncs) <= 5


def test_a_thread_of_the_process_has_a_request_made_durable_and_gets_its_reply(running) -> None:
    assert running.sync.call(running.request(1)).status is Status.OK


def test_a_request_that_comes_when_the_bookie_stops_is_told_so_and_never_waits(running) -> None:
    running.run(running.sync.stop())
    with pytest.raises(StorageError, match="the bookie stops"):
        running.sync.call(running.request(1))


def test_what_was_put_before_the_stop_is_made_durable(running) -> None:
    answers = [running.answer(number) for number in range(20)]
    running.until(lambda: running.sync.queued_bytes > 0 or all(answer.done() for answer in answers))
    running.run(running.sync.stop())
    assert {answer.result(DEADLINE_S).status for answer in answers} <= {Status.OK}


def test_a_sync_thread_that_dies_tells_it_and_keeps_nobody_waiting(running, monkeypatch) -> None:
    def die() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(running.bookie, "sync", die)
    with pytest.raises(StorageError, match="a bug"):
        running.answer(1).result(DEADLINE_S)
    assert isinstance(running.failed.result(DEADLINE_S), RuntimeError)
    with pytest.raises(StorageError, match="a bug"):
        running.sync.call(running.request(2))


def test_one_who_waits_for_room_is_told_of_the_death_of_the_sync_thread(harness, monkeypatch) -> None:
    """A thread of garbage collection that waited for ever would hang the stop of the bookie."""
    running, may_die = Running(harness, maximum_bytes=1), threading.Event()

    def die() -> None:
        assert may_die.wait(DEADLINE_S)
        raise RuntimeError("a bug")

    monkeypatch.setattr(running.bookie, "sync", die)
    first = running.answer(1)
    running.until(lambda: running.sync.queued_bytes > 1)
    second = running.answer(2)
    may_die.set()
    for answer in (first, second):
        with pytest.raises(StorageError, match="a bug"):
            answer.result(DEADLINE_S)
    running.close()


def test_a_thread_that_outlives_the_bookie_is_told_that_it_stopped(harness) -> None:
    """A repair that waited for another bookie for longer than the stop waits for it."""
    running = Running(harness)
    running.close()
    with pytest.raises(StorageError, match="the bookie has stopped"):
        running.sync.call(running.request(1))


@pytest.mark.parametrize(("size", "pause_s"), [(10, 2 * LOOK_S), (LOOK_BYTES, 0.0)], ids=["as time goes by", "after much"])
def test_the_disks_are_looked_at_before_groups_and_while_nothing_comes(running, size: int, pause_s: float) -> None:
    running.until(lambda: len(running.looks) > 1)
    assert running.answer(0, size=size).result(DEADLINE_S).status is Status.OK
    before = len(running.looks)
    for number in range(1, 6):
        time.sleep(pause_s)
        assert running.answer(number, size=size).result(DEADLINE_S).status is Status.OK
    assert len(running.looks) >= before + 5


def test_a_failed_sync_answers_unknown_and_the_thread_lives_on(running) -> None:
    """Situation 58; storage rule 6."""
    assert running.answer(1).result(DEADLINE_S).status is Status.OK
    running.harness.disk.fail("sync", "journal")
    assert [running.answer(number).result(DEADLINE_S).status for number in (2, 3)] == [Status.IO_ERROR] * 2
    assert not running.failed.done()


def test_checkpoints_run_in_their_own_thread_one_after_the_other_and_all_before_its_end() -> None:
    ran: list[tuple[int, str]] = []
    with CheckpointThread() as checkpoints:
        for number in range(3):
            checkpoints(lambda number=number: ran.append((number, threading.current_thread().name)))
    assert ran == [(number, "checkpoint") for number in range(3)]


def test_a_checkpoint_thread_that_dies_tells_it_also_to_one_who_asks_later() -> None:
    told: list[BaseException] = []
    problem = RuntimeError("a bug")

    def die() -> None:
        raise problem

    with CheckpointThread() as checkpoints:
        checkpoints.on_failure(told.append)
        checkpoints(die)
    checkpoints.on_failure(told.append)
    assert told == [problem, problem]
