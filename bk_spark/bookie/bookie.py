"""A bookie without its server: how it answers requests, and what it makes durable before an answer.

*Stage* and *sync* are separate steps, so that many requests share one sync: ``stage`` takes a request in, ``sync`` makes
everything staged durable and returns the replies. Both run on the sync thread, so that checking a ledger's fence and adding to
it are one step. Reads come from any thread. There are no threads, clocks or sockets here: the server drives the bookie.

A read never fences. The driver stages a FenceRequest first, syncs, and reads if the reply is OK. A read that asks for a fence
gets UNKNOWN while that fence is not durable.

Ref: DESIGN.md, "One protocol, one driver"; docs/rules.md, protocol rules 32 to 43, 47 and 50.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bk_spark.bookie.admission import Admission, status_of
from bk_spark.bookie.batch_read import BatchRead, ReportDamage
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk, Space
from bk_spark.bookie.identity.cookie_file import root_uses
from bk_spark.bookie.index.ledger_index import OpenIndex
from bk_spark.bookie.index.look_up import next_asked
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.progress import Progress
from bk_spark.bookie.storage.checkpoint import Background, run_inline
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.open_storage import OpenOptions, open_frozen, open_storage
from bk_spark.bookie.storage.stored_ledgers import DURABLE_WAIT_S, LedgerFacts
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import is_foreign, writable_hash
from bk_spark.errors import BookKeeperError, NotOpenedError, StorageError
from bk_spark.version import VERSION
from bk_spark.wire import messages
from bk_spark.wire.messages import StagedReply, StagedRequest, Status

logger = logging.getLogger(__name__)

MAX_TOLD = 1_000
"""So many ledgers the program's log names once each; after that it may name them again. Clients must not fill it."""

_Replies = list[tuple[object, StagedReply]]

REFUSALS_PER_WARNING = 1000
"""While no file can be opened, one of so many refused requests is logged."""


@dataclass(frozen=True, slots=True)
class _Home:
    """A bookie's id and where its files are. ``lock`` is None if the caller of ``open`` holds it."""

    bookie_id: str
    directories: Directories
    disk: Disk
    lock: DirectoryLock | None


class Bookie:
    """One bookie over its directories. Made by ``open``. ``admission`` ends the limbo of ledgers that were repaired."""

    def __init__(self, home: _Home, config: BookieConfig, storage: LedgerStorage) -> None:
        self.storage = storage
        self.admission = Admission(home.bookie_id, storage.limbo, storage.set_limbo)
        self._home = home
        self._config = config
        self._boot = int.from_bytes(home.disk.random_bytes(8), "little")
        self._early: _Replies = []
        self._staged: _Replies = []
        self._is_synced = True
        self._told: set[int] = set()
        """Ledgers that the program's log names, because of an add with other entries than those that are stored."""
        self.report_damage: ReportDamage = lambda batches: None
        """Takes the stored batches that clients' reads find damaged."""
        self._is_frozen = False
        self._not_opened = 0
        """Requests refused for NotOpenedError so far."""

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
        open_index: OpenIndex = open_sqlite_index,
        durable_wait_s: float = DURABLE_WAIT_S,
        background: Background = run_inline,
        progress: Progress | None = None,
    ) -> Bookie:
        """Lock the directories, replay the log files, and be ready to serve.

        ``directories`` given as a path is the data directory; ``config`` says where the others are. With a ``lock`` that covers
        the directories, the caller keeps it; otherwise ``close`` releases the bookie's own.

        ``possible_loss`` says why durable data may be gone ("" if it is not). In that case, or if replay finds damage, all
        ledgers up to ``highest_issued()``, the highest id that may have been issued, are in limbo, durably, before anything is
        served; without ``highest_issued`` such a start is refused. A limbo from an earlier start goes on.

        With ``durable_wait_s`` 0, a read that meets an entry whose sync is pending does not wait: the entry is unknown.
        ``background`` runs the slow part of checkpoints. ``progress`` is told how far the opening has come.

        Raises ConfigError (directory in use, missing, or another bookie's), CorruptionError, FormatVersionError, StorageError;
        its own lock is released then.
        """
        if isinstance(directories, Path):
            directories = Directories.of(directories, config)
        steps = progress or Progress()
        options = OpenOptions(open_index, durable_wait_s, background, possible_loss, highest_issued, steps)
        home = _Home(bookie_id, directories, disk, disk.lock(directories.data_dir) if lock is None else None)
        try:
            return cls(home, config, open_storage(directories, bookie_id, config, disk, options))
        except BaseException:
            if home.lock is not None:
                home.lock.release()
            raise

    @classmethod
    def open_frozen(
        cls,
        directories: Directories,
        bookie_id: str,
        config: BookieConfig,
        disk: Disk,
        start: OpenOptions,
        problem: StorageError,
    ) -> Bookie:
        """A bookie that serves reads alone, because ``problem``, a lack of space, lets it make nothing durable.

        It is as after a failed write: it takes no request that changes something, and denies nothing. The caller holds the
        locks. Raises as ``open``.
        """
        opened = open_frozen(directories, bookie_id, config, disk, start, problem)
        bookie = cls(_Home(bookie_id, directories, disk, None), config, opened.storage)
        bookie.admission.limbo = opened.limbo
        bookie._is_frozen = True
        return bookie

    # The sync thread calls these.

    def stage(self, request: StagedRequest, reply_to: object) -> None:
        """Take a request in. The next ``sync``, or ``take_early``, returns its reply together with ``reply_to``.

        A fence holds at once for everything staged after it, even before it is durable.
        """
        if self._is_synced:
            self._attempt(self.storage.checkpoint_if_due)
            self._is_synced = False
        try:
            status, detail = self._take(request)
        except BookKeeperError as problem:
            status, detail = status_of(problem), str(problem)
            self._warn(problem)
        if isinstance(request, messages.AddRequest):
            replies = self._early if request.deferred_sync else self._staged
            replies.append((reply_to, messages.AddReply(request.request_id, status, detail, self._boot)))
        else:
            self._staged.append((reply_to, messages.PlainReply(status, detail, self._boot)))

    def take_early(self) -> list[tuple[object, StagedReply]]:
        """Write the staged adds with deferred sync, and return their replies, which need no sync. A sync is still due."""
        replies, self._early = self._early, []
        return self._after(self.storage.write, replies) if replies else []

    def sync(self) -> list[tuple[object, StagedReply]]:
        """Make everything staged durable, and return the replies.

        Begins a checkpoint if one is due and the last one has ended; otherwise the next ``stage`` waits for it.
        """
        replies, self._early, self._staged = self._early + self._staged, [], []
        replies = self._after(self.storage.sync, replies)
        self._is_synced = True
        self._attempt(lambda: self.storage.checkpoint_if_due(may_wait=False))
        return replies

    def idle(self) -> None:
        """To be called when no request came for a while: note once that everything in the log files is durable."""
        self._attempt(self.storage.idle)
        self._attempt(self.storage.checkpoint_if_due)

    def close(self) -> None:
        """Sync, checkpoint, seal and release. Raises StorageError if that failed: the next start replays."""
        try:
            self.storage.close()
        finally:
            if self._home.lock is not None:
                self._home.lock.release()

    def set_writable_directories(self, ordinals: Sequence[int]) -> None:
        """Begin entry logs in these directories only. An empty list changes nothing: the bookie is read-only then."""
        self.storage.log_files.set_writable(ordinals)

    # Any thread may call these.

    @property
    def bookie_id(self) -> str:
        return self._home.bookie_id

    @property
    def failure(self) -> BaseException | None:
        """The error after which the storage takes no more changes, until the bookie is started again."""
        return self.storage.failure

    @property
    def may_forget(self) -> bool:
        """Whether acked adds may be in memory alone after a failure: adds skip the journal."""
        return not self._config.journal_write_data and not self._is_frozen

    @property
    def limbo(self) -> Limbo | None:
        """The ledgers in limbo, as stored in the index."""
        return self.admission.limbo

    @property
    def is_read_only(self) -> bool:
        return self.admission.is_read_only

    @property
    def ids_above(self) -> str:
        """Why new ledgers are refused: their ids may be given out again. "" if they are not."""
        return self.admission.ids_above

    def refuse_new_ledgers(self, ids_above: str) -> None:
        """Take no normal adds to ledgers of which nothing is here, or with "" take them again."""
        self.admission.ids_above = ids_above

    def set_read_only(self, is_read_only: bool, *, is_exhausted: bool = False) -> None:
        """The disks are full: take only fences and the adds of recoveries; if exhausted, fences alone. Or there is space."""
        self.admission.are_disks_full = is_read_only
        self.admission.is_exhausted = is_exhausted

    @property
    def is_ordered_read_only(self) -> bool:
        """Whether an operator ordered that the bookie is read-only, whatever its disks say."""
        return self.admission.is_ordered_read_only

    def order_read_only(self, is_read_only: bool) -> None:
        """As ``set_read_only``, by an operator's order. Each of the two goes by itself."""
        self.admission.is_ordered_read_only = is_read_only

    @property
    def lapse(self) -> str:
        """Why the bookie takes no changes at this moment although its storage does; "" if it takes them."""
        return self.admission.lapse()

    def ask_lapse(self, lapse: Callable[[], str]) -> None:
        """Take no add, fence or other change while ``lapse`` gives a reason, and acknowledge none whose sync ends then."""
        self.admission.lapse = lapse

    def read(self, request: messages.ReadRequest) -> Iterator[messages.ReadBatch | messages.ReadEnd]:
        """The requested entries in ascending order, each from the newest batch that holds it, then one ReadEnd.

        Batches go out as stored, and are cut only where they overlap or leave the requested range. So if the requested pattern
        has gaps, a batch may contain entries that were not asked for.
        """
        position = next_asked(request.pattern, request.first)
        try:
            is_limbo = self.admission.is_limbo(request.ledger_id)
            status = self.admission.of_read(request, self.storage.facts(request.ledger_id))
            if status is not Status.OK:
                yield messages.ReadEnd(*self._refusal(status, request.ledger_id, is_limbo, position))
                return
            maximum_bytes = self._config.read_reply_bytes
            yield from BatchRead(self.storage, request, maximum_bytes, self.report_damage, is_limbo=is_limbo).replies()
        except BookKeeperError as problem:
            yield messages.ReadEnd(status_of(problem), position, str(problem))

    def read_last_add_confirmed(self, request: messages.LastAddConfirmedRequest) -> messages.LastAddConfirmedReply:
        """The highest last add confirmed that came with an add to the ledger or by itself. Never waits."""
        try:
            is_limbo = self.admission.is_limbo(request.ledger_id)
            facts = self.storage.facts(request.ledger_id)
            status = self.admission.of_read(request, facts)
            if status is Status.OK and is_limbo:
                status = Status.UNKNOWN
            if status is not Status.OK or facts is None:
                return messages.LastAddConfirmedReply(*self._refusal(status, request.ledger_id, is_limbo, NO_ENTRY))
        except BookKeeperError as problem:
            return messages.LastAddConfirmedReply(status_of(problem), NO_ENTRY, str(problem))
        return messages.LastAddConfirmedReply(Status.OK, facts.last_add_confirmed, is_fenced=facts.is_durably_fenced)

    def describe(self) -> messages.BookieDescription:
        """Shows the space of the entry log directory with the least free space, and that of each root."""
        home = self._home
        try:
            space = min((home.disk.space(path) for path in home.directories.entry_logs), key=lambda space: space.free_bytes)
        except BookKeeperError as problem:
            return messages.BookieDescription(status_of(problem), home.bookie_id, 0, 0, VERSION)
        roots = tuple(_described(home.disk, root, uses) for root, uses in root_uses(home.directories).items())
        return messages.BookieDescription(Status.OK, home.bookie_id, space.free_bytes, space.total_bytes, VERSION, roots)

    def _take(self, request: StagedRequest) -> tuple[Status, str]:
        ledger_id = request.ledger_id
        facts = self.storage.facts(ledger_id)
        status = self.admission.of_staged(request, facts)
        if status is Status.OK and not self._put(request, ledger_id, facts):
            if isinstance(request, messages.AddRequest):
                return Status.BAD_REQUEST, self._refused_second_add(request)
            return Status.UNKNOWN, f"what came of ledger {ledger_id} since then belongs here: it was not deleted"
        return status, self.admission.explain(status, ledger_id)

    def _put(self, request: StagedRequest, ledger_id: int, facts: LedgerFacts | None) -> bool:
        """Stage an admitted request, under the ledger's key if it has one. False if a deletion came too late, or an add has
        other entries than those that are stored under its ids."""
        if isinstance(request, messages.DeleteLedgerRequest):
            if facts is not None and request.own_key_hash and not is_foreign(facts.master_key_hash, request.own_key_hash):
                return False
            return self.storage.delete(ledger_id, request.deleted_ms, request.decided_at)
        key = writable_hash(request.master_key) if facts is None else facts.master_key_hash
        match request:
            case messages.AddRequest():
                return self.storage.put(request.batch, key, is_recovery=request.recovery)
            case messages.FenceRequest():
                self.storage.fence(ledger_id, key)
            case messages.StoreLastAddConfirmedRequest():
                self.storage.confirm(ledger_id, key, request.last_add_confirmed, request.proof)
            case messages.ForceRequest():
                self.storage.force()
        return True

    def _refused_second_add(self, request: messages.AddRequest) -> str:
        """The text of the refusal. The program's log names a ledger once."""
        ledger_id, header = request.ledger_id, request.batch.header
        detail = (
            f"another entry is stored under an id from {header.first_entry_id} to {header.last_entry_id} of ledger {ledger_id}"
        )
        if ledger_id not in self._told:
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            self._told.add(ledger_id)
            logger.warning("bookie %s refuses an add: %s, and what is stored stays", self._home.bookie_id, detail)
        return detail

    def _refusal(self, status: Status, ledger_id: int, is_limbo: bool, position: int) -> tuple[Status, int, str]:
        """Why a read is refused: NO_SUCH_LEDGER only if that is certain."""
        if status is Status.NO_SUCH_LEDGER:
            if is_limbo:
                status = Status.UNKNOWN
            else:
                self.storage.verify_missing(ledger_id)
        return status, position, self.admission.explain(status, ledger_id)

    def _after(self, step: Callable[[], None], replies: _Replies) -> _Replies:
        """Run ``step``, then return the replies. If it fails, or lasts until the bookie lapses, none says OK."""
        try:
            step()
        except BookKeeperError as problem:
            return _without_ok(replies, Status.IO_ERROR, f"whether it was stored is unknown: {problem}")
        lapse = self.lapse
        return _without_ok(replies, Status.UNKNOWN, lapse) if lapse else replies

    def _warn(self, problem: BookKeeperError) -> None:
        """Log, not too often, that a file cannot be opened. Other errors are logged where they happen."""
        if isinstance(problem, NotOpenedError):
            if self._not_opened % REFUSALS_PER_WARNING == 0:
                remedy = "nothing is lost, and later requests are taken; raise the limit of open files ('ulimit -n')"
                logger.warning("bookie %s refuses a request, because %s: %s", self._home.bookie_id, problem, remedy)
            self._not_opened += 1

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step that answers no request. The storage remembers a failure, and the next request reports it."""
        known = self.failure
        try:
            step()
        except BookKeeperError as problem:
            if isinstance(problem, NotOpenedError):
                self._warn(problem)
            elif known is None:
                logger.error("bookie %s takes no more adds: %s", self._home.bookie_id, problem)


def _without_ok(replies: _Replies, status: Status, detail: str) -> _Replies:
    """The replies with ``status`` in place of OK."""
    return [
        (reply_to, replace(reply, status=status, detail=detail) if reply.status is Status.OK else reply)
        for reply_to, reply in replies
    ]


def _described(disk: Disk, root: Path, uses: Sequence[str]) -> messages.BookieDirectory:
    try:
        space = disk.space(root)
    except BookKeeperError:
        space = Space(0, 0)
    return messages.BookieDirectory(str(root), " ".join(uses), disk.file_system(root), space.free_bytes, space.total_bytes)
