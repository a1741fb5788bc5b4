"""What clients do in a round, each step told to the history before the next one: write, recover, follow, read."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError, NoSuchEntryError
from tests.soak.chaos import history
from tests.soak.chaos.history import Recorder, digest, last_confirmed, read_events
from tests.soak.chaos.plan import MAX_APPEND_BYTES, SIZES, Load

CONFIG = ClientConfig(
    add_timeout_s=1.0,
    add_quorum_timeout_s=6.0,
    replacement_retry_s=0.3,
    explicit_lac_s=0.2,
    read_timeout_s=1.0,
    speculative_read_s=0.2,
    recovery_timeout_s=8.0,
    quarantine_s=2.0,
)
"""Less patient than the defaults: faults last about a second here, not a minute."""

RETRY_S = 0.1
FOLLOW_S = 0.5
"""One long poll of a follower."""


class Writer:
    """Creates a ledger and appends to it until ``stopped``, the load's end, or the first failure."""

    def __init__(self, client: BookKeeper, recorder: Recorder, load: Load) -> None:
        self._recorder = recorder
        self._load = load
        self._random = random.Random(load.seed)
        self._room = threading.Semaphore(load.depth)
        self._failed = threading.Event()
        self._appended = 0
        self._bytes = 0
        self._handle = client.create_ledger(*load.shape, digest_type=load.digest_type)
        recorder.record(history.CREATED, ledger_id=self._handle.ledger_id)

    @property
    def handle(self) -> WriteHandle:
        return self._handle

    def write(self, stopped: threading.Event) -> None:
        while not stopped.is_set() and not self._failed.is_set() and self._bytes < self._load.max_bytes:
            if not self._room.acquire(timeout=RETRY_S):
                continue
            try:
                self._append([self._random.randbytes(size) for size in self._sizes()])
            except BookKeeperError as problem:
                self._fail(problem)
                self._room.release()
            time.sleep(self._random.uniform(0, 2 * self._load.pause_s))

    def await_answers(self) -> None:
        """Until each append is confirmed or has failed, and that is recorded."""
        for _ in range(self._load.depth):
            self._room.acquire()
        self._recorder.record(history.WRITER_ENDED)

    def close(self) -> None:
        try:
            self._handle.close()
        except BookKeeperError as problem:
            self._recorder.record(history.WRITER_FAILED, **_described(problem))
        else:
            end = {"last": self._handle.last_add_confirmed, "length": self._handle.length}
            self._recorder.record(history.WRITER_CLOSED, **end)

    def _sizes(self) -> list[int]:
        count = self._random.randint(1, self._load.max_batch)
        sizes = [
            self._random.randint(size // 2, size) for size in self._random.choices(SIZES, self._load.size_weights, k=count)
        ]
        totals = list(itertools.accumulate(sizes))
        return [size for size, total in zip(sizes, totals, strict=True) if total <= max(MAX_APPEND_BYTES, sizes[0])]

    def _append(self, payloads: list[bytes]) -> None:
        sizes, digests = [len(one) for one in payloads], [digest(one) for one in payloads]
        self._recorder.record(history.APPENDED, first=self._appended, sizes=sizes, digests=digests)
        self._appended += len(payloads)
        self._bytes += sum(sizes)
        if len(payloads) == 1:
            self._handle.append_async(payloads[0]).add_done_callback(self._answered)
        else:
            self._handle.append_batch_async(payloads).add_done_callback(self._answered)

    def _answered(self, future: Future[int] | Future[tuple[int, int]]) -> None:
        problem = future.exception()
        if problem is None:
            result = future.result()
            first, last = result if isinstance(result, tuple) else (result, result)
            self._recorder.record(history.CONFIRMED, first=first, last=last)
        else:
            self._fail(problem)
        self._room.release()

    def _fail(self, problem: BaseException) -> None:
        """The first failure is what ended the writer; the others follow from it."""
        if not self._failed.is_set():
            self._failed.set()
            self._recorder.record(history.WRITER_FAILED, **_described(problem))


def recover(client: BookKeeper, recorder: Recorder, ledger_id: int, stopped: threading.Event) -> None:
    """Open with recovery, again after each failure, as an application does."""
    while not stopped.is_set():
        recorder.record(history.OPENING)
        try:
            handle = client.open_ledger(ledger_id)
        except Exception as problem:  # what it was is judged by the checker
            recorder.record(history.OPEN_FAILED, **_described(problem))
            stopped.wait(RETRY_S)
        else:
            recorder.record(history.OPENED, last=handle.last_add_confirmed, length=handle.length)
            return


def read_all(client: BookKeeper, recorder: Recorder, ledger_id: int, stopped: threading.Event) -> None:
    """Read the closed ledger from its first to its last entry: the final read of a round."""
    while not stopped.is_set():
        try:
            handle = client.open_ledger(ledger_id, recover=False)
            _read(recorder, handle.read, 0, handle.last_add_confirmed, final=True)
            return
        except NoSuchEntryError as problem:
            recorder.record(history.DENIED, entry_id=problem.entry_id, asked_ns=time.monotonic_ns())
            return
        except Exception as problem:  # what it was is judged by the checker
            recorder.record(history.READ_FAILED, **_described(problem))
            stopped.wait(RETRY_S)


class Follower:
    """Reads behind the writer: what it is shown as confirmed, and what the writer itself says is."""

    def __init__(self, client: BookKeeper, recorder: Recorder, ledger_id: int, writer_file: Path) -> None:
        self._client = client
        self._recorder = recorder
        self._ledger_id = ledger_id
        self._writer_file = writer_file
        self._next = 0

    def follow(self, stopped: threading.Event) -> None:
        """Until the ledger is closed and read to its end, or ``stopped``."""
        while not stopped.is_set():
            try:
                if self._follow(self._client.open_ledger(self._ledger_id, recover=False), stopped):
                    return
            except Exception as problem:  # what it was is judged by the checker
                self._recorder.record(history.READ_FAILED, **_described(problem))
                stopped.wait(RETRY_S)

    def _follow(self, handle: ReadHandle, stopped: threading.Event) -> bool:
        while not stopped.is_set():
            self._show(lambda: handle.wait_for_last_add_confirmed(self._next - 1, FOLLOW_S), quorum=False)
            if handle.last_add_confirmed >= self._next:
                _read(self._recorder, handle.read, self._next, handle.last_add_confirmed)
                self._next = handle.last_add_confirmed + 1
            if handle.is_closed and self._next > handle.last_add_confirmed:
                return True
            self._read_what_the_writer_says(handle)
            self._show(handle.read_last_add_confirmed, quorum=True)
        return False

    def _read_what_the_writer_says(self, handle: ReadHandle) -> None:
        last = last_confirmed(read_events(self._writer_file))
        asked_ns = time.monotonic_ns()
        if last < self._next:
            return
        try:
            _read(self._recorder, handle.read_unconfirmed, self._next, last)
        except NoSuchEntryError as problem:
            self._recorder.record(history.DENIED, entry_id=problem.entry_id, asked_ns=asked_ns)

    def _show(self, ask: Callable[[], int], *, quorum: bool) -> None:
        asked_ns = time.monotonic_ns()
        self._recorder.record(history.SHOWN, last_add_confirmed=ask(), quorum=quorum, asked_ns=asked_ns)


def _read(recorder: Recorder, read: Callable[..., object], first: int, last: int, *, final: bool = False) -> None:
    if last < first:
        recorder.record(history.READ, first=first, digests=[], final=final)
        return
    for batch in read(first, last):  # type: ignore[attr-defined]
        digests = [digest(payload) for payload in batch.column("payload").to_pylist()]
        recorder.record(history.READ, first=batch.column("entry_id")[0].as_py(), digests=digests, final=final)


def _described(problem: BaseException) -> dict[str, str]:
    return {"error": type(problem).__name__, "text": str(problem)}
