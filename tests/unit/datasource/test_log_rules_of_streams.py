"""Schedules of log rules that go through the data source: each holds as shipped, and goes wrong without its guard.

Without Spark and without bookies: what Spark calls is called here, on a metadata store in memory. The others are in
tests/unit/log/test_log_rules.py.

Ref: docs/rules.md, log rules 5, 7 and 10.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch as patched

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.read import batch_limits, micro_batch
from bk_spark.datasource.read.batch_limits import Limits, admitted
from bk_spark.datasource.read.followed_log import CursorPublisher, FollowedLog
from bk_spark.datasource.read.log_stream import LogStream
from bk_spark.datasource.read.micro_batch import MicroBatchPortion, read_portion
from bk_spark.datasource.read.read_task import Sources
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.datasource.read.tail import LogTail, StreamThreads
from bk_spark.datasource.write import writer
from bk_spark.datasource.write.writer import BatchWriter, LedgerMessage, StreamWriter, application_of
from bk_spark.errors import ConfigError, CorruptionError, NoSuchLedgerError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head
from bk_spark.log.stream.follow import LogFollower, Newest
from bk_spark.log.stream.order import FAIL
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.unit.log.log_case import LogCase, LogCases, Scene, Violated, ended, must

CASES = LogCases()
LOG = "orders"
QUERY = "0c5b2f6e"
DEADLINE_S = 60.0


# --- rule 5


def _attempt(scene: Scene, job: WriteJob) -> Any:
    options = SimpleNamespace(application_id=None, application_version=None, merge_schema=False)
    return SimpleNamespace(options=options, job=job, schema=None, logs=scene.logs)


def _written(scene: Scene) -> tuple[WriteJob, CommittedLedger]:
    job = scene.logs.jobs.begin(LOG)
    return job, scene.job_ledger(job)


def _derive_the_batch_everywhere(patch: pytest.MonkeyPatch) -> None:
    commit_messages = writer.commit_messages

    def commit(attempt: Any, kind: CommitKind, messages: list[LedgerMessage], application: tuple[str, int] | None) -> None:
        commit_messages(attempt, kind, messages, application or (application_of(QUERY), 3))

    patch.setattr(writer, "commit_messages", commit)


@CASES.add(5, _derive_the_batch_everywhere, "only the stream writer takes query and batch for the application")
def foreach_batch_writes_twice_to_one_log(scene: Scene) -> None:
    for _ in range(2):
        job, ledger = _written(scene)
        BatchWriter(_attempt(scene, job), CommitKind.APPEND).commit([LedgerMessage(job, (ledger,))])
    must(
        len(scene.listed(LOG)) == 2, "the second write of the batch was dropped as a duplicate of the first: its rows are lost"
    )


def _commit_any_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "_of_one_batch", lambda messages, batch_id: messages)


@CASES.add(5, _commit_any_message, "messages of another query, batch or job are refused")
def messages_of_a_batch_that_is_committed_come_with_the_next_one(scene: Scene) -> None:
    job, ledger = _written(scene)
    StreamWriter(_attempt(scene, job), CommitKind.APPEND).commit([LedgerMessage(job, (ledger,), QUERY, 4)], 4)
    job, ledger = _written(scene)
    late = LedgerMessage(job, (ledger,), QUERY, 4)
    ended(lambda: StreamWriter(_attempt(scene, job), CommitKind.APPEND).commit([late], 5), ConfigError)
    must(len(scene.listed(LOG)) == 1, "rows of batch 4 are in the log twice")


# --- rule 7


def _followed(scene: Scene, logs: Any = None) -> FollowedLog:
    def describe(ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        stored = scene.store.get_many([scene.znodes.ledger(one) for one in ledger_ids])
        return [LedgerMetadata.decode(one, found.value) for one, found in zip(ledger_ids, stored, strict=True) if found]

    def no_open_ledger(ledger_id: int) -> Any:
        raise AssertionError(f"ledger {ledger_id} is closed")

    uid = scene.logs.names.uid(LOG)
    follower = LogFollower(scene.logs.reader, LOG, uid, FAIL, describe)
    opener = LogLedgerOpener(scene.logs, LOG, uid, no_open_ledger)
    return FollowedLog(LOG, uid, logs or scene.logs, follower, opener, describe)


class _Sizes:
    """Every entry has 100 bytes."""

    def length_up_to(self, ledger_id: int, entry_id: int) -> int:
        return 100 * (entry_id + 1)

    def rows(self, ledger_id: int, first: int, last: int) -> Iterator[int]:
        return iter([1] * (last - first + 1))


def _take_what_fits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_limits, "max", lambda entries, one: entries, raising=False)


@CASES.add(7, _take_what_fits, "a non-empty batch advances at least one entry")
def a_batch_limit_is_smaller_than_one_entry(scene: Scene) -> None:
    scene.write(LOG, 3)
    log = _followed(scene)
    head = scene.logs.names.head(LOG, log.uid)
    end = log.follower.newest(head, {}, behind(0)).position
    position, rounds = behind(0), 0
    while position != end and rounds < 10:
        stretches = log.follower.stretches(position, end, head, fail_on_data_loss=True)
        position, rounds = admitted(stretches, position, Limits(None, 1), _Sizes()).end, rounds + 1
    must(rounds == 3, f"after {rounds} batches the stream stands at {position}, and the log ends at {end}")


def _look_anew_for_each_batch(patch: pytest.MonkeyPatch) -> None:
    def look(self: LogStream, start: StreamPosition) -> tuple[Head, Newest]:
        head = self.log.logs.names.fresh_head(LOG, self.log.uid)
        return head, self.log.follower.newest(head, {}, start)

    patch.setattr(LogStream, "_look", look)


@CASES.add(7, _look_anew_for_each_batch, "AvailableNow freezes its target")
def a_log_grows_while_available_now_reads_it(scene: Scene) -> None:
    scene.write(LOG)
    options = SimpleNamespace(max_rows_per_trigger=None, max_bytes_per_trigger=None, fail_on_data_loss=True)
    log = _followed(scene)
    reading: Any = SimpleNamespace(options=options)
    reader = StreamReader(reading, LOG, log.uid)
    reader._made = LogStream(reading, log, CursorPublisher(log, "test", is_named=False), StreamThreads(StreamThread("test")))
    reader.prepareForTriggerAvailableNow()
    start, batches = behind(0).to_offset(log.uid), 0
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start and batches < 10:
        scene.write(LOG)
        start, batches = end, batches + 1
    must(batches == 1, f"a run of the query that was to read what there is goes on after {batches} batches")


def _never_mind_the_thread(patch: pytest.MonkeyPatch) -> None:
    def newest(self: LogTail) -> tuple[Head, Newest]:
        assert self._heard._looked.wait(DEADLINE_S)
        assert self._heard.known is not None
        return self._heard.known

    patch.setattr(LogTail, "newest", newest)


@CASES.add(7, _never_mind_the_thread, "a dead thread makes the next question fail")
def the_thread_that_looks_at_the_log_dies(scene: Scene) -> None:
    scene.write(LOG)
    broken: list[bool] = []

    def head(name: str, uid: str) -> Head:
        if broken:
            raise CorruptionError("the head of the log", "it is damaged")
        return scene.logs.names.head(name, uid)

    names = SimpleNamespace(head=head, fresh_head=head, paths=scene.logs.names.paths)
    log = _followed(scene, SimpleNamespace(names=names, store=scene.logs.store, reader=scene.logs.reader))
    threads = StreamThreads(StreamThread("test"))
    following = LogTail(log, behind(0), CursorPublisher(log, "test", is_named=False), threads)
    before = following.newest()[1].position
    broken.append(True)
    scene.write(LOG)
    deadline_s = time.monotonic() + DEADLINE_S
    while following._heard.failure is None and time.monotonic() < deadline_s:
        following.wake()
        following._heard._looked.wait(0.01)
    assert following._heard.failure is not None
    is_told = ended(
        lambda: must(following.newest()[1].position > before, "the stream looks idle, and rows are there"), CorruptionError
    )
    threads.looks.stop()
    assert is_told


# --- rule 10


def _leave_out_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(micro_batch, "_check_truncated", lambda *given: None)


@CASES.add(10, _leave_out_what_is_gone, "a ledger that is gone means 'no rows' only where the head shows that it was truncated")
def a_ledger_of_a_planned_range_is_gone(scene: Scene) -> None:
    """The query allows data loss; nobody has truncated the log."""
    ledger = scene.write(LOG)
    scene.store.delete(scene.znodes.ledger(ledger.ledger_id))
    must(ended(lambda: _read(scene, ledger), NoSuchLedgerError), "ten rows are left out, and nobody hears of it")


def _read(scene: Scene, ledger: CommittedLedger) -> list[pa.RecordBatch]:
    def batches(stretches: Sequence[Stretch], sources: Sources) -> Iterator[pa.RecordBatch]:
        raise NoSuchLedgerError(stretches[0].ledger_id)

    options = SimpleNamespace(fail_on_data_loss=False, metadata="memory://", client=None)
    reading: Any = SimpleNamespace(options=options, batches=batches)
    stretch = Stretch(ledger.ledger_id, 0, ledger.last_entry_id, ledger.length)
    sources = Sources(LOG, scene.logs.names.uid(LOG))
    portion = MicroBatchPortion((stretch,), {ledger.ledger_id: (1, ledger.rows)}, sources)
    with patched.object(micro_batch, "connect", lambda *given: SimpleNamespace(logs=scene.logs)):
        return list(read_portion(portion, reading, LOG, sources.uid))


EVERY = pytest.mark.parametrize("case", CASES, ids=str)


@EVERY
def test_the_schedule_of_a_log_rule_holds(case: LogCase) -> None:
    case.schedule(Scene())


@EVERY
def test_the_schedule_of_a_log_rule_goes_wrong_without_its_guard(case: LogCase) -> None:
    with pytest.MonkeyPatch.context() as patch:
        case.without(patch)
        with pytest.raises(Violated):
            case.schedule(Scene())


def test_a_ledger_that_was_truncated_and_is_gone_has_no_rows_where_data_loss_is_allowed() -> None:
    """Log rule 10: the other half."""
    scene = Scene()
    ledger = scene.write(LOG)
    stays = scene.write(LOG)
    scene.logs.truncate(LOG, scene.logs.names.uid(LOG), stays.ledger_id)
    scene.store.delete(scene.znodes.ledger(ledger.ledger_id))
    assert _read(scene, ledger) == []
