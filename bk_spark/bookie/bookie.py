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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.admission import Admission, status_of
from bk_spark.bookie.batch_read import BatchRead
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.index.ledger_index import OpenIndex
from bk_spark.bookie.index.look_up import next_asked
from bk_spark.bookie.index.rows import Limbo
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.storage.checkpoint import Background, run_inline
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.open_storage import OpenOptions, open_storage
from bk_spark.bookie.storage.stored_ledgers import DURABLE_WAIT_S, LedgerFacts
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import master_key_hash
from bk_spark.errors import BookKeeperError
from bk_spark.version import VERSION
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    BookieDescription,
    DeleteLedgerRequest,
    FenceRequest,
    ForceRequest,
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

logger = logging.getLogger(__name__)

_Replies = list[tuple[object, StagedReply]]


@dataclass(frozen=True, slots=True)
class _Home:
    """What a bookie is and lives on. ``lock`` is None if the caller of ``open`` holds it."""

    bookie_id: str
    directories: Directories
    disk: Disk
    lock: DirectoryLock | None


class Bookie:
    """One bookie over its directories. Made by ``open``."""

    def __init__(self, home: _Home, config: BookieConfig, storage: LedgerStorage) -> None:
        self.storage = storage
        self._home = home
        self._config = config
        self._admission = Admission(home.bookie_id, storage.limbo, storage.set_limbo)
        self._boot = int.from_bytes(home.disk.random_bytes(8), "little")
        self._early: _Replies = []
        self._staged: _Replies = []
        self._is_synced = True

    @classmethod
    def open(
        cls,
        directories: Directories | Path,
        bookie_id: str,
        config: BookieConfig,
        disk: Disk = REAL_DISK,
        *,
        lock: DirectoryLock | None = None,
        possible_loss: str = "",
        highest_issued: Callable[[], int] | None = None,
        fence_watermark: int | None = None,
        open_index: OpenIndex = open_sqlite_index,
        durable_wait_s: float = DURABLE_WAIT_S,
        background: Background = run_inline,
    ) -> Bookie:
        """Take the directories (a path: the data directory, the rest as configured), replay what was logged, be ready to serve.

        With a ``lock``, which covers the directories, the caller keeps it; else ``close`` gives it free.

        ``possible_loss`` says why what was durable may be gone ("": it is not). Then, or if replay finds damage, the ledgers
        up to what ``highest_issued`` says, the highest id that may have been issued, are in limbo, durably, before anything is
        served; without it such a start is refused. ``fence_watermark`` is short for a possible loss with that number.
        A limbo of an earlier start goes on.

        ``durable_wait_s`` 0: a read that meets an entry whose sync is pending does not wait, it is unknown. ``background``
        runs what is slow of a checkpoint.

        Raises ConfigError (in use, not there, another bookie's), CorruptionError, FormatVersionError, StorageError; the
        directory is free again then.
        """
        if isinstance(directories, Path):
            directories = Directories.of(directories, config)
        if fence_watermark is not None:
            possible_loss, highest_issued = possible_loss or "a watermark was given", lambda: fence_watermark
        start = OpenOptions(open_index, durable_wait_s, background, possible_loss, highest_issued)
        home = _Home(bookie_id, directories, disk, disk.lock(directories.data_dir) if lock is None else None)
        try:
            return cls(home, config, open_storage(directories, bookie_id, config, disk, start))
        except BaseException:
            if home.lock is not None:
                home.lock.release()
            raise

    # --- the sync thread

    def stage(self, request: StagedRequest, reply_to: object) -> None:
        """Take a request in; its reply comes out of the next ``sync``, or of ``take_early``, with ``reply_to``.

        A fence holds for all that is staged after it, before it is durable.
        """
        if self._is_synced:
            self._attempt(self.storage.checkpoint_if_due)
            self._is_synced = False
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
        return self._after(self.storage.write, replies) if replies else []

    def sync(self) -> list[tuple[object, StagedReply]]:
        """Make everything staged durable, then give its replies.

        A checkpoint is begun if one is due; if it has to wait for the one before, it does so after the replies are out.
        """
        replies, self._early, self._staged = self._early + self._staged, [], []
        replies = self._after(self.storage.sync, replies)
        self._is_synced = True
        self._attempt(lambda: self.storage.checkpoint_if_due(may_wait=False))
        return replies

    def idle(self) -> None:
        """Nothing is staged and nothing came for a while: note once that all that was logged is durable."""
        self._attempt(self.storage.idle)
        self._attempt(self.storage.checkpoint_if_due)

    def close(self) -> None:
        """Sync, checkpoint, seal and release. Raises StorageError if it could not; the next start replays then."""
        try:
            self.storage.close()
        finally:
            if self._home.lock is not None:
                self._home.lock.release()

    def set_writable_directories(self, ordinals: Sequence[int]) -> None:
        """Begin entry logs in these directories only. None at all changes nothing: the bookie is read-only then."""
        self.storage.logs.set_writable(ordinals)

    # --- any thread

    @property
    def failure(self) -> BaseException | None:
        """What ended all changes: nothing more is taken until the bookie is started again."""
        return self.storage.failure

    @property
    def may_forget(self) -> bool:
        """Whether what was acked may be in memory alone after a failure: without a journal for data."""
        return not self._config.journal_write_data

    @property
    def limbo(self) -> Limbo | None:
        """Which ledgers are in limbo, as it is stored."""
        return self._admission.limbo

    def settle(self, ledger_id: int) -> None:
        """End the limbo of a ledger: it is recovered, and all that this bookie should have of it is here, durably.

        It is forgotten by a restart unless ``settle_through`` passed the ledger.
        """
        self._admission.settle(ledger_id)

    def settle_through(self, ledger_id: int, unsettled: frozenset[int]) -> None:
        """End the limbo of all ledgers up to ``ledger_id``, inclusive, but of ``unsettled``, durably."""
        self._admission.settle_through(ledger_id, unsettled)

    def end_limbo(self) -> None:
        """End the limbo of every ledger, durably."""
        self._admission.end_limbo()

    @property
    def is_read_only(self) -> bool:
        return self._admission.is_read_only

    def set_read_only(self, is_read_only: bool, *, is_exhausted: bool = False) -> None:
        """Take fences and the adds of recoveries only, or everything again; exhausted, not even the adds of recoveries."""
        self._admission.is_read_only = is_read_only
        self._admission.is_exhausted = is_exhausted

    def read(self, request: ReadRequest) -> Iterator[ReadBatch | ReadEnd]:
        """The asked entries in ascending order, each from the newest batch that holds it, then one ReadEnd.

        Batches go out as they are stored, cut only where they overlap or leave the asked range: where the asked pattern has
        gaps, entries that were not asked for may be among them.
        """
        position = next_asked(request.pattern, request.first)
        try:
            is_limbo = self._admission.is_limbo(request.ledger_id)
            status = self._admission.of_read(request, self.storage.facts(request.ledger_id))
            if status is not Status.OK:
                yield ReadEnd(*self._refusal(status, request.ledger_id, is_limbo, position))
                return
            yield from BatchRead(self.storage, request, self._config.read_reply_bytes, is_limbo=is_limbo).replies()
        except BookKeeperError as problem:
            yield ReadEnd(status_of(problem), position, str(problem))

    def read_last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedReply:
        """The highest last add confirmed that came with an add of the ledger or by itself. Never waits."""
        try:
            is_limbo = self._admission.is_limbo(request.ledger_id)
            facts = self.storage.facts(request.ledger_id)
            status = self._admission.of_read(request, facts)
            if status is Status.OK and is_limbo:
                status = Status.UNKNOWN
            if status is not Status.OK or facts is None:
                return LastAddConfirmedReply(*self._refusal(status, request.ledger_id, is_limbo, NO_ENTRY))
        except BookKeeperError as problem:
            return LastAddConfirmedReply(status_of(problem), NO_ENTRY, str(problem))
        return LastAddConfirmedReply(Status.OK, facts.last_add_confirmed, is_fenced=facts.is_durably_fenced)

    def describe(self) -> BookieDescription:
        """The space is that of the entry log directory that has the least."""
        try:
            spaces = [self._home.disk.space(path) for path in self._home.directories.entry_logs]
            space = min(spaces, key=lambda one: one.free_bytes)
        except BookKeeperError as problem:
            return BookieDescription(status_of(problem), self._home.bookie_id, 0, 0, VERSION)
        return BookieDescription(Status.OK, self._home.bookie_id, space.free_bytes, space.total_bytes, VERSION)

    # --- inside

    def _take(self, request: StagedRequest) -> tuple[Status, str]:
        ledger_id = request.batch.header.ledger_id if isinstance(request, AddRequest) else request.ledger_id
        facts = self.storage.facts(ledger_id)
        status = self._admission.of_staged(request, facts)
        if status is Status.OK and not self._put(request, ledger_id, facts):
            return Status.UNKNOWN, f"copies of ledger {ledger_id} are being brought to this bookie: it was not deleted"
        return status, self._admission.explain(status, ledger_id)

    def _put(self, request: StagedRequest, ledger_id: int, facts: LedgerFacts | None) -> bool:
        """Stage what was admitted: its key is the ledger's, if that has one. False if a deletion came too late."""
        if isinstance(request, DeleteLedgerRequest):
            return self.storage.delete(ledger_id, request.deleted_ms, request.decided_at)
        key = master_key_hash(request.master_key) if facts is None else facts.master_key_hash
        match request:
            case AddRequest():
                self.storage.put(request.batch, key)
            case FenceRequest():
                self.storage.fence(ledger_id, key)
            case StoreLastAddConfirmedRequest():
                self.storage.confirm(ledger_id, key, request.last_add_confirmed)
            case ForceRequest():
                self.storage.force()
        return True

    def _refusal(self, status: Status, ledger_id: int, is_limbo: bool, position: int) -> tuple[Status, int, str]:
        """A refusal of a read; "no such ledger" only where that is certain."""
        if status is Status.NO_SUCH_LEDGER:
            if is_limbo:
                status = Status.UNKNOWN
            else:
                self.storage.verify_missing(ledger_id)
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
        known = self.failure
        try:
            step()
        except BookKeeperError as problem:
            if known is None:
                logger.error("bookie %s takes no more adds: %s", self._home.bookie_id, problem)


def _unless_refused(reply: StagedReply, problem: BookKeeperError) -> StagedReply:
    if reply.status is not Status.OK:
        return reply
    return replace(reply, status=Status.IO_ERROR, detail=f"whether it was stored is unknown: {problem}")
