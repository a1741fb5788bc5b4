"""A bookie without its server: what it answers to adds and reads, and what must be durable before.

*Stage* and *sync* are apart, so that many adds share one sync: ``stage`` takes adds in, ``sync`` makes all of them durable and
gives back their replies. Both belong to one thread, the sync thread; reads come from any. There are no threads, clocks or
sockets here: what drives it, the server, is elsewhere.

Ref: DESIGN.md, "One protocol, one driver"; docs/rules.md, protocol rules 32 to 43.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.index_rows import BatchRow
from bk_spark.bookie.ledger_storage import LedgerStorage
from bk_spark.bookie.look_up import newest_holding, next_asked, stretch_end
from bk_spark.bookie.replay import open_storage
from bk_spark.config import BookieConfig
from bk_spark.digest import master_key_hash
from bk_spark.entry import NO_ENTRY, cut
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.version import VERSION
from bk_spark.wire import (
    AddReply,
    AddRequest,
    BookieDescription,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
)

log = logging.getLogger(__name__)


class Bookie:
    """One bookie over one data directory. Made by ``open``."""

    def __init__(
        self, bookie_id: str, data_dir: Path, config: BookieConfig, storage: LedgerStorage, lock: DirectoryLock, disk: Disk
    ) -> None:
        self._bookie_id = bookie_id
        self._data_dir = data_dir
        self._config = config
        self._storage = storage
        self._lock = lock
        self._disk = disk
        self._staged: list[tuple[object, AddReply]] = []

    @classmethod
    def open(cls, data_dir: Path, bookie_id: str, config: BookieConfig, disk: Disk = REAL_DISK) -> Bookie:
        """Take the data directory, replay what was logged, and be ready to serve.

        Raises ConfigError (in use, not there, another bookie's), CorruptionError, FormatVersionError, StorageError; the
        directory is free again then.
        """
        lock = disk.lock(data_dir)
        try:
            storage = open_storage(data_dir, bookie_id, config, disk)
        except BaseException:
            lock.release()
            raise
        return cls(bookie_id, data_dir, config, storage, lock, disk)

    # --- the sync thread

    def stage(self, request: AddRequest, reply_to: object) -> None:
        """Take an add in; its reply comes out of the next ``sync``, with ``reply_to``."""
        try:
            status, detail = self._put(request)
        except BookKeeperError as problem:
            status, detail = _status_of(problem), str(problem)
        self._staged.append((reply_to, AddReply(request.request_id, status, detail)))

    def sync(self) -> list[tuple[object, AddReply]]:
        """Make everything staged durable, then give its replies; a checkpoint follows if one is due."""
        replies, self._staged = self._staged, []
        try:
            self._storage.sync()
        except BookKeeperError as problem:
            return [(reply_to, _unless_refused(reply, problem)) for reply_to, reply in replies]
        self._attempt(self._storage.checkpoint_if_due)
        return replies

    def idle(self) -> None:
        """Nothing is staged and nothing came for a while: note once that all that was logged is durable."""
        self._attempt(self._storage.idle)

    def close(self) -> None:
        """Sync, checkpoint, seal and release. Raises StorageError if it could not; the next start replays then."""
        try:
            self._storage.close()
        finally:
            self._lock.release()

    # --- any thread

    def read(self, request: ReadRequest) -> Iterator[ReadBatch | ReadEnd]:
        """The asked entries in ascending order, each from the newest batch that holds it, then one ReadEnd.

        Batches go out as they are stored, cut only where they overlap or leave the asked range: where the asked pattern has
        gaps, entries that were not asked for may be among them.
        """
        position = next_asked(request.pattern, request.first)
        try:
            status = self._may_use(request.bookie_id, request.ledger_id, request.master_key)
            if status is not Status.OK:
                yield ReadEnd(status, position, self._why(status, request.ledger_id))
                return
            yield from _Read(self._storage, request, self._config.read_reply_bytes).replies()
        except BookKeeperError as problem:
            yield ReadEnd(_status_of(problem), position, str(problem))

    def read_last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedReply:
        """The highest last add confirmed that any add of the ledger carried here."""
        try:
            status = self._may_use(request.bookie_id, request.ledger_id, request.master_key)
            if status is not Status.OK:
                return LastAddConfirmedReply(status, NO_ENTRY, self._why(status, request.ledger_id))
            confirmed = self._storage.last_add_confirmed(request.ledger_id)
        except BookKeeperError as problem:
            return LastAddConfirmedReply(_status_of(problem), NO_ENTRY, str(problem))
        return LastAddConfirmedReply(Status.OK, NO_ENTRY if confirmed is None else confirmed)

    def describe(self) -> BookieDescription:
        try:
            space = self._disk.space(self._data_dir)
        except BookKeeperError as problem:
            return BookieDescription(_status_of(problem), self._bookie_id, 0, 0, VERSION)
        return BookieDescription(Status.OK, self._bookie_id, space.free_bytes, space.total_bytes, VERSION)

    # --- inside

    def _put(self, request: AddRequest) -> tuple[Status, str]:
        ledger_id = request.batch.header.ledger_id
        if request.bookie_id != self._bookie_id:
            return Status.WRONG_BOOKIE, self._why(Status.WRONG_BOOKIE, ledger_id)
        given = master_key_hash(request.master_key)
        stored = self._storage.master_key_hash(ledger_id)
        if stored is not None and not hmac.compare_digest(stored, given):
            return Status.UNAUTHORIZED, self._why(Status.UNAUTHORIZED, ledger_id)
        self._storage.put(request.batch, given)
        return Status.OK, ""

    def _may_use(self, bookie_id: str, ledger_id: int, master_key: bytes) -> Status:
        if bookie_id != self._bookie_id:
            return Status.WRONG_BOOKIE
        stored = self._storage.master_key_hash(ledger_id)
        if stored is None:
            self._storage.verify_missing(ledger_id)
            return Status.NO_SUCH_LEDGER
        return Status.OK if hmac.compare_digest(stored, master_key_hash(master_key)) else Status.UNAUTHORIZED

    def _why(self, status: Status, ledger_id: int) -> str:
        if status is Status.WRONG_BOOKIE:
            return f"this is bookie {self._bookie_id}"
        if status is Status.UNAUTHORIZED:
            return f"the password of ledger {ledger_id} is another one"
        return f"bookie {self._bookie_id} has never stored an entry of ledger {ledger_id}"

    def _attempt(self, step: Callable[[], None]) -> None:
        """A step that answers nobody: the storage remembers a failure, and the next add is told."""
        try:
            step()
        except BookKeeperError as problem:
            log.error("bookie %s takes no more adds: %s", self._bookie_id, problem)


class _Read:
    """One read under way."""

    def __init__(self, storage: LedgerStorage, request: ReadRequest, maximum_bytes: int) -> None:
        self._storage = storage
        self._request = request
        self._budget = min(request.maximum_bytes, maximum_bytes)
        self._window = storage.rows(request.ledger_id, request.first, request.last)
        self._sent_bytes = 0

    def replies(self) -> Iterator[ReadBatch | ReadEnd]:
        request = self._request
        floor = request.first  # every asked id below it was sent
        while True:
            position = next_asked(request.pattern, floor)
            if position > request.last:
                yield ReadEnd(Status.OK, request.last + 1)
                return
            try:
                row = newest_holding(self._window.overlapping(position, position), position)
                if row is None:
                    yield self._missing(position)
                    return
                ended = self._ended(row, position)
                if ended is not None:
                    yield ended
                    return
                batch, floor = self._batch(row, floor, position)
            except BookKeeperError as problem:
                yield ReadEnd(_status_of(problem), position, str(problem))
                return
            yield batch

    def _missing(self, position: int) -> ReadEnd:
        self._storage.verify_missing(self._request.ledger_id)
        return ReadEnd(Status.NO_SUCH_ENTRY, position, f"there is no entry {position} here")

    def _ended(self, row: BatchRow, position: int) -> ReadEnd | None:
        """The end of the read if it may not go on with ``row``."""
        if self._sent_bytes and self._sent_bytes + row.size_bytes > self._budget:
            return ReadEnd(Status.OK, position)
        if not self._storage.wait_durable(row):
            return ReadEnd(Status.UNKNOWN, position, f"entry {position} was received, whether it is durable is unknown")
        return None

    def _batch(self, row: BatchRow, floor: int, position: int) -> tuple[ReadBatch, int]:
        """What ``row`` answers for from ``position`` on, and the id after it; ids from ``floor`` on were not sent yet."""
        request = self._request
        rows = self._window.overlapping(position, min(row.last_entry_id, request.last))
        end = stretch_end(row, rows, request.pattern, position, request.last)
        piece = cut(self._storage.get(row), floor, end)
        assert piece is not None  # it holds position
        self._sent_bytes += len(piece.body)
        return ReadBatch(piece), end + 1


def _status_of(problem: BookKeeperError) -> Status:
    """Damage is never "no such entry"."""
    return Status.DAMAGED if isinstance(problem, CorruptionError | FormatVersionError) else Status.IO_ERROR


def _unless_refused(reply: AddReply, problem: BookKeeperError) -> AddReply:
    if reply.status is not Status.OK:
        return reply
    return AddReply(reply.request_id, Status.IO_ERROR, f"whether it was stored is unknown: {problem}")
