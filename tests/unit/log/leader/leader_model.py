"""Leaders of logs for tests: over ledgers and a metadata store that a test moves by hand, and over a store in memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from bk_spark.client.driver.client_context import EndsWithClient
from bk_spark.client.driver.event_loop import EventLoop
from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_items import new_future
from bk_spark.config import LedgerOptions
from bk_spark.errors import BookKeeperError, LedgerFencedError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.leader.leadership import CreatedLedger, end_of
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.leader.roll_log import RollLimits
from bk_spark.log.leader.tier_rolls import TierWait
from bk_spark.log.log_handle import LedgerAccess, Log, TierTables
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from tests.unit.log.log_world import LogWorld

DEADLINE_S = 60.0


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    deadline, tick = time.monotonic() + DEADLINE_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        tick.wait(0.002)


def on_loop(call: Callable[[], None]) -> None:
    """Make a call on the client's event loop, behind all that it has to do by now."""
    loop, made = EventLoop.get(), threading.Event()
    if threading.current_thread().name == "bk_spark":
        call()
        return
    loop.call_soon_threadsafe(lambda: (call(), made.set()))
    assert made.wait(DEADLINE_S)


class HandLedger:
    """A ledger whose appends are confirmed or fail when the test says so, in order, and on the event loop."""

    _is_client_closed = False

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._sent: list[bytes] = []
        self.last_add_confirmed = -1
        self.length = 0
        self.is_closed = False
        self.may_close = threading.Event()
        self.may_close.set()
        self.close_error: BookKeeperError | None = None
        self.send_error: Exception | None = None
        self.refuses: BookKeeperError | None = None
        """What a call is refused with."""
        self._leader: EndsWithClient | None = None
        self._pending: list[tuple[Future[Any], list[bytes], bool]] = []

    def _write_for(self, log: str, leader: EndsWithClient) -> None:
        self._leader = leader

    def beat(self) -> None:
        """As that of a client: have the leader look at what has arrived."""
        if self._leader is not None:
            on_loop(self._leader.look)

    def _check_takes(self, nbytes: int) -> None:
        if self.refuses is not None:
            raise self.refuses

    @property
    def sent(self) -> list[bytes]:
        self.beat()
        return self._sent

    def append_async(self, payload: bytes) -> Future[int]:
        return self._append([payload], is_batch=False)

    def append_batch_async(self, payloads: CheckedPayloads) -> Future[tuple[int, int]]:
        return self._append(payloads.array.to_pylist(), is_batch=True)

    def confirm(self, count: int | None = None) -> None:
        """Confirm the next ``count`` calls, by default all."""
        self.beat()
        on_loop(lambda: self._confirm(count))

    def _confirm(self, count: int | None) -> None:
        for _ in range(len(self._pending) if count is None else count):
            future, payloads, is_batch = self._pending.pop(0)
            first, self.last_add_confirmed = self.last_add_confirmed + 1, self.last_add_confirmed + len(payloads)
            self.length += sum(map(len, payloads))
            future.set_result((first, self.last_add_confirmed) if is_batch else first)

    def fail(self, error: BookKeeperError) -> None:
        """As a WriteHandle does: all that is not confirmed, and all that comes."""
        self.beat()
        on_loop(lambda: self._fail(error))

    def _fail(self, error: BookKeeperError) -> None:
        pending, self._pending = self._pending, []
        for future, _, _ in pending:
            future.set_exception(error)

    def close(self) -> None:
        assert self.may_close.wait(DEADLINE_S)
        if self.close_error is not None:
            raise self.close_error
        self.is_closed = True

    def _append(self, payloads: list[bytes], *, is_batch: bool) -> Future[Any]:
        if self.send_error is not None:
            raise self.send_error
        future: Future[Any] = new_future()
        self._sent += payloads
        self._pending.append((future, payloads, is_batch))
        return future


@dataclass
class HandLeadership:
    """What Leadership does, with the list of ledgers in memory. ``may_list`` holds a roll's commit back."""

    name: str = "orders"
    epoch: int = 3
    ledgers: list[HandLedger] = field(default_factory=lambda: [HandLedger(5)])
    recorded: list[CommittedLedger] = field(default_factory=list)
    most_open: int = 1
    creation_error: BaseException | None = None
    commit_error: BaseException | None = None
    may_list: threading.Event = field(default_factory=threading.Event)
    created: list[HandLedger] = field(default_factory=list)
    wait: TierWait | None = None
    """What the log's tier says."""
    wait_error: BookKeeperError | None = None
    looks: int = 0
    """For the tier."""
    tries: int = 0
    """To create a ledger."""

    def __post_init__(self) -> None:
        self.may_list.set()

    def create(self) -> CreatedLedger:
        self.tries += 1
        if self.creation_error is not None:
            raise self.creation_error
        self.created.append(HandLedger(5 + len(self.created) + 1))
        return CreatedLedger(self.created[-1], job=None)  # type: ignore[arg-type]

    def list_next(self, created: CreatedLedger) -> None:
        assert self.may_list.wait(DEADLINE_S)
        self._check_commits()
        assert isinstance(created.ledger, HandLedger)
        self.ledgers.append(created.ledger)
        self.most_open = max(self.most_open, len(self.ledgers) - len(self.recorded))

    def end_of(self, ledger: HandLedger) -> CommittedLedger:
        return end_of(ledger)  # type: ignore[arg-type]

    def record(self, end: CommittedLedger) -> None:
        self._check_commits()
        self.recorded.append(end)

    def tier_wait(self) -> TierWait | None:
        self.looks += 1
        if self.wait_error is not None:
            raise self.wait_error
        return self.wait

    def _check_commits(self) -> None:
        if self.commit_error is not None:
            raise self.commit_error

    def lead(self, roll_bytes: int = 10**9, window_bytes: int = 10**6, append_wait_s: float = 120.0) -> LogWriteHandle:
        leadership: Any = self
        return LogWriteHandle(leadership, self.ledgers[0], RollLimits(roll_bytes, window_bytes, append_wait_s))

    def taken_over(self) -> list[bytes]:
        """The log as a new leader finds it whose recovery of each ledger finds what is confirmed, and nothing more."""
        return [payload for ledger in self.ledgers for payload in ledger.sent[: ledger.last_add_confirmed + 1]]


class Calls:
    """A call in a thread of its own, for calls that wait."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as problem:
            self._problem = problem

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> None:
        """Wait for its end, and raise what it raised."""
        self._thread.join(DEADLINE_S)
        assert self.is_done, "the call did not return"
        if self._problem is not None:
            raise self._problem


ENTRY = b"x" * 100
"""What the ledgers of a LogWorld hold."""


class StubReader:
    """Tells what is read of a ledger that is closed."""

    is_closed = True

    def __init__(self, ledger_id: int, reads: list[tuple[int, int, int]]) -> None:
        self._ledger_id = ledger_id
        self._reads = reads

    @property
    def last_add_confirmed(self) -> int:
        raise AssertionError("only open ledgers are asked")

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self._reads.append((self._ledger_id, first, last))
        yield pa.record_batch({"entry_id": list(range(first, last + 1))})


class WorldLedger(HandLedger):
    """Confirms at once, and closes in the metadata of a LogWorld. It takes entries of 100 bytes."""

    def __init__(self, world: LogWorld, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self._world = world

    def _append(self, payloads: list[bytes], *, is_batch: bool) -> Future[Any]:
        future = super()._append(payloads, is_batch=is_batch)
        self._confirm(None)
        return future

    def close(self) -> None:
        closed = self._world.close_ledger(self.ledger_id, self.last_add_confirmed + 1)
        if closed.last_entry_id != self.last_add_confirmed:
            raise LedgerFencedError(self.ledger_id)


@dataclass
class WorldLogs:
    """Opens logs of a LogWorld, as a client does."""

    world: LogWorld
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    options: list[LedgerOptions] = field(default_factory=list)
    """Of the ledgers that leaders created."""

    def open(self, logs: LogStore | None = None, name: str = "orders") -> Log:
        logs = logs or self.world.logs

        def create(asked: LedgerOptions, job: WriteJob) -> WorldLedger:
            self.options.append(asked)
            return WorldLedger(self.world, self.world.open_ledger(job, logs))

        access = LedgerAccess(
            lambda ledger_id: StubReader(ledger_id, self.reads),
            create,
            b"secret",
            existing_ledgers=lambda ids: [],
            tables=Mock(spec=TierTables),
        )
        return Log(logs, name, logs.open(name, create=True), access)

    def open_rows(self) -> tuple[Log, CommittedLedger]:
        """A log of rows with its one ledger, as a Spark job wrote it."""
        job = self.world.logs.jobs.begin("rows")
        ledger = self.world.job_ledger(job)
        column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [column]})
        self.world.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,), schema_json=schema))
        return self.open(name="rows"), ledger

    def unlisted(self, log: Log) -> list[int]:
        """Ledgers that exist, and that the log does not list."""
        listed = {one.ledger_id for one in log.ledgers()}
        others = [one for one in range(1, next(self.world.ids)) if one not in listed]
        return [one for one in others if self.world.ledger_exists(CommittedLedger(one, -1, 0, 0))]
