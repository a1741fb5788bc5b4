"""A bookie without its server: what it answers to requests, and what must be durable before.

*Stage* and *sync* are apart, so that many requests share one sync: ``stage`` takes them in, ``sync`` makes all of them durable
and gives back their replies. Both belong to one thread, the sync thread, so that the check whether a ledger is fenced and the
add to it are one step; reads come from any. There are no threads, clocks or sockets here: what drives it, the server, is
elsewhere.

A read never fences. Whoever drives the bookie stages a FenceRequest first, syncs, and reads if the reply is OK; a read that
asks for a fence that is not durable is answered as unknown.

Ref: DESIGN.md, "One protocol, one driver"; docs/rules.md, protocol rules 32 to 43, 47 and 50.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.admission import Admission, status_of
from bk_spark.bookie.batch_read import BatchRead
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.ledger_index import OpenIndex
from bk_spark.bookie.ledger_storage import DURABLE_WAIT_S, LedgerStorage
from bk_spark.bookie.look_up import next_asked
from bk_spark.bookie.replay import open_storage
from bk_spark.bookie.sqlite_index import open_index as open_sqlite_index
from bk_spark.config import BookieConfig
from bk_spark.digest import master_key_hash
from bk_spark.entry import NO_ENTRY
from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION
from bk_spark.wire import (
    AddReply,
    AddRequest,
    BookieDescription,
    FenceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    StagedReply,
    StagedRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

log = logging.getLogger(__name__)

_Replies = list[tuple[object, StagedReply]]


@dataclass(frozen=True, slots=True)
class _Home:
    """What a bookie is and lives on."""

    bookie_id: str
    data_dir: Path
    disk: Disk
    lock: DirectoryLock


class Bookie:
    """One bookie over one data directory. Made by ``open``."""

    def __init__(self, home: _Home, config: BookieConfig, storage: LedgerStorage, admission: Admission) -> None:
        self._home = home
        self._config = config
        self._storage = storage
        self._admission = admission
        self._boot = int.from_bytes(home.disk.random_bytes(8), "little")
        self._early: _Replies = []
        self._staged: _Replies = []

    @classmethod
    def open(
        cls,
        data_dir: Path,
        bookie_id: str,
        config: BookieConfig,
        disk: Disk = REAL_DISK,
        *,
        fence_watermark: int | None = None,
        open_index: OpenIndex = open_sqlite_index,
        durable_wait_s: float = DURABLE_WAIT_S,
    ) -> Bookie:
        """Take the data directory, replay what was logged, and be ready to serve.

        Ledgers up to ``fence_watermark``, inclusive, are in limbo until they are settled; None after a start that lost
        nothing. ``durable_wait_s`` 0: a read that meets an entry whose sync is pending does not wait, it is unknown.

        Raises ConfigError (in use, not there, another bookie's), CorruptionError, FormatVersionError, StorageError; the
        directory is free again then.
        """
        lock = disk.lock(data_dir)
        try:
            storage = open_storage(data_dir, bookie_id, config, disk, open_index, durable_wait_s)
        except BaseException:
            lock.release()
            raise
        return cls(_Home(bookie_id, data_dir, disk, lock), config, storage, Admission(bookie_id, fence_watermark))

    # --- the sync thread

    def stage(self, request: StagedRequest, reply_to: object) -> None:
        """Take a request in; its reply comes out of the next ``sync``, or of ``take_early``, with ``reply_to``.

        A fence holds for all that is staged after it, before it is durable.
        """
        try:
            status, detail = self._take(request)
        except BookKeeperError as problem:
            status, detail = status_of(problem), str(problem)
        if isinstance(request, AddRequest):
            replies = self._early if request.deferred_sync else self._staged
            replies.append((reply_to, AddReply(request.request_id, status, detail, self._boot)))
        else:
            self._staged.append((reply_to, PlainReply(status, detail, self._boot)))

    def take_early(self) -> list[tuple[object, StagedReply]]:
        """The replies that need no sync, those of adds with deferred sync: what they added is written, a sync is still due."""
        replies, self._early = self._early, []
        return self._after(self._storage.write, replies) if replies else []

    def sync(self) -> list[tuple[object, StagedReply]]:
        """Make everything staged durable, then give its replies; a checkpoint follows if one is due."""
        replies, self._early, self._staged = self._early + self._staged, [], []
        replies = self._after(self._storage.sync, replies)
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
            self._home.lock.release()

    # --- any thread

    def settle(self, ledger_id: int) -> None:
        """End the limbo of a ledger: it is recovered, and all that this bookie should have of it is here, durably."""
        self._admission.settle(ledger_id)

    def set_read_only(self, is_read_only: bool) -> None:
        """Take fences and the adds of recoveries only, or everything again."""
        self._admission.is_read_only = is_read_only

    def read(self, request: ReadRequest) -> Iterator[ReadBatch | ReadEnd]:
        """The asked entries in ascending order, each from the newest batch that holds it, then one ReadEnd.

        Batches go out as they are stored, cut only where they overlap or leave the asked range: where the asked pattern has
        gaps, entries that were not asked for may be among them.
        """
        position = next_asked(request.pattern, request.first)
        try:
            is_limbo = self._admission.is_limbo(request.ledger_id)
            status = self._admission.of_read(request, self._storage.facts(request.ledger_id))
            if status is not Status.OK:
                yield ReadEnd(*self._refusal(status, request.ledger_id, is_limbo, position))
                return
            yield from BatchRead(self._storage, request, self._config.read_reply_bytes, is_limbo=is_limbo).replies()
        except BookKeeperError as problem:
            yield ReadEnd(status_of(problem), position, str(problem))

    def read_last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedReply:
        """The highest last add confirmed that came with an add of the ledger or by itself. Never waits."""
        try:
            is_limbo = self._admission.is_limbo(request.ledger_id)
            facts = self._storage.facts(request.ledger_id)
            status = self._admission.of_read(request, facts)
            if status is Status.OK and is_limbo:
                status = Status.UNKNOWN
            if status is not Status.OK or facts is None:
                return LastAddConfirmedReply(*self._refusal(status, request.ledger_id, is_limbo, NO_ENTRY))
        except BookKeeperError as problem:
            return LastAddConfirmedReply(status_of(problem), NO_ENTRY, str(problem))
        return LastAddConfirmedReply(Status.OK, facts.last_add_confirmed, is_fenced=facts.is_durably_fenced)

    def describe(self) -> BookieDescription:
        try:
            space = self._home.disk.space(self._home.data_dir)
        except BookKeeperError as problem:
            return BookieDescription(status_of(problem), self._home.bookie_id, 0, 0, VERSION)
        return BookieDescription(Status.OK, self._home.bookie_id, space.free_bytes, space.total_bytes, VERSION)

    # --- inside

    def _take(self, request: StagedRequest) -> tuple[Status, str]:
        ledger_id = request.batch.header.ledger_id if isinstance(request, AddRequest) else request.ledger_id
        status = self._admission.of_staged(request, self._storage.facts(ledger_id))
        if status is Status.OK:
            given = master_key_hash(request.master_key)
            match request:
                case AddRequest():
                    self._storage.put(request.batch, given)
                case FenceRequest():
                    self._storage.fence(ledger_id, given)
                case StoreLastAddConfirmedRequest():
                    self._storage.confirm(ledger_id, given, request.last_add_confirmed)
        return status, self._admission.explain(status, ledger_id)

    def _refusal(self, status: Status, ledger_id: int, is_limbo: bool, position: int) -> tuple[Status, int, str]:
        """A refusal of a read; "no such ledger" only where that is certain."""
        if status is Status.NO_SUCH_LEDGER:
            if is_limbo:
                status = Status.UNKNOWN
            else:
                self._storage.verify_missing(ledger_id)
        return status, position, self._admission.explain(status, ledger_id)

    def _after(self, step: Callable[[], None], replies: _Replies) -> _Replies:
        """The replies once ``step`` is done. If it fails, none of them says that anything was stored."""
        try:
            step()
        except BookKeeperError as problem:
            return [(reply_to, _unless_refused(reply, problem)) for reply_to, reply in replies]
        return replies

    def _attempt(self, step: Callable[[], None]) -> None:
        """A step that answers nobody: the storage remembers a failure, and the next request is told."""
        try:
            step()
        except BookKeeperError as problem:
            log.error("bookie %s takes no more adds: %s", self._home.bookie_id, problem)


def _unless_refused(reply: StagedReply, problem: BookKeeperError) -> StagedReply:
    if reply.status is not Status.OK:
        return reply
    return replace(reply, status=Status.IO_ERROR, detail=f"whether it was stored is unknown: {problem}")
