"""The right to re-replicate a ledger: the ledger's lock, and the proof that it was held all the time.

A lock is ephemeral. While its holder is suspended, the lock may disappear and be taken by others, and a bookie may drop copies
that no metadata names (protocol rule 45). If the first holder changed the metadata then, it would name a bookie without
entries.

A **guard** prevents this. It is an ephemeral znode with a name that is never used again. Each session makes its guard before it
takes its first lock, and every change of metadata requires, in its own transaction, that the guard exists. If the guard exists,
the session was never lost since, nor any lock that it took.

Ref: docs/rules.md, protocol rule 45, situation 83; docs/formats.md, "Znodes of re-replication".
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from dataclasses import dataclass

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.errors import MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import ANY_VERSION, MetadataStore, NoNodeError
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.metadata.znodes import Znodes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenLedger:
    """A ledger as it was when it was locked."""

    guard: str
    """The path that every change of its metadata must require."""
    metadata: LedgerMetadata | None
    """None: there is no such ledger."""
    version: int
    """The metadata's."""
    mark: Mark | None


class ReplicationLock:
    """The locks of one process. Threads may share it. All methods block on the metadata store."""

    def __init__(self, store: MetadataStore, znodes: Znodes, marks: UnderReplication, owner: str) -> None:
        """``owner`` is stored in locks and guards, for people."""
        self._store = store
        self._znodes = znodes
        self._ledgers = LedgerStore(store, znodes)
        self._marks = marks
        self._owner = owner
        self._mutex = threading.Lock()
        self._guard = ""
        self._left_locked: set[int] = set()
        """Ledgers that may be locked, as the store did not answer."""

    def take(self, ledger_id: int) -> TakenLedger | None:
        """Lock a ledger, and read its metadata and its mark. None if somebody else holds the lock.

        Raises what reading metadata and marks raises. The ledger is then unlocked, at the latest when the session ends.
        """
        for _ in range(2):
            if ledger_id in self._left_locked:
                self._marks.unlock(ledger_id)
                self._left_locked.discard(ledger_id)
            guard = self._current_guard()
            if not self._try_lock(ledger_id):
                return None
            try:
                taken = self._read(ledger_id, guard)
            except BaseException:
                self.give_back(ledger_id)
                raise
            if taken is not None:
                return taken
            self._forget_guard(guard)
            self.give_back(ledger_id)
        raise MetadataUnavailableError(self._store.uri, "its session was lost again and again")

    def locked_by_others(self) -> set[int]:
        """The locked ledgers of the whole cluster, without those that this process may have left locked: nobody else can take
        them.
        """
        return self._marks.locked_ids() - self._left_locked

    def finish(self, taken: TakenLedger) -> bool:
        """Remove the mark of a whole ledger, unless it was reported again (protocol rule 56). Returns whether it is gone."""
        return taken.mark is None or self._marks.remove(taken.mark, taken.guard)

    def cut_off(self, ledger_id: int, guard: str) -> None:
        """Unlock a ledger whose re-replication was cancelled.

        The guard is deleted first, so that a change that is on its way to the store fails, as does all other work with this
        guard.
        """
        self._forget_guard(guard)
        try:
            with contextlib.suppress(NoNodeError):
                self._store.delete(guard, ANY_VERSION)
        except MetadataUnavailableError as problem:
            self._leave_locked(ledger_id, problem)
        else:
            self.give_back(ledger_id)

    def give_back(self, ledger_id: int) -> None:
        """Unlock a ledger. If the store does not answer, it stays locked until this process takes it, or the session ends."""
        try:
            self._marks.unlock(ledger_id)
        except MetadataUnavailableError as problem:
            self._leave_locked(ledger_id, problem)

    def _try_lock(self, ledger_id: int) -> bool:
        try:
            return self._marks.try_lock(ledger_id, self._owner)
        except MetadataUnavailableError:
            self._left_locked.add(ledger_id)  # the lock may have been made
            raise

    def _leave_locked(self, ledger_id: int, problem: MetadataUnavailableError) -> None:
        self._left_locked.add(ledger_id)
        logger.warning("the lock of ledger %d was not given back yet: %s", ledger_id, problem)

    def _read(self, ledger_id: int, guard: str) -> TakenLedger | None:
        """Read guard, metadata and mark at once. None if the guard, and so its session, is gone."""
        paths = [guard, self._znodes.ledger(ledger_id), self._znodes.under_replicated(ledger_id)]
        proof, value, marked = self._store.get_many(paths)
        if proof is None:
            return None
        mark = None if marked is None else self._marks.decoded(ledger_id, marked)
        if value is not None:
            return TakenLedger(guard, LedgerMetadata.decode(ledger_id, value.value), value.version, mark)
        self._store.sync(paths[1])  # before that, an absence proves nothing
        try:
            return TakenLedger(guard, *self._ledgers.versioned(ledger_id), mark)
        except NoSuchLedgerError:
            return TakenLedger(guard, None, 0, mark)

    def _current_guard(self) -> str:
        with self._mutex:
            if not self._guard:
                path = self._znodes.replicator(uuid.uuid4().hex)
                self._store.create(path, self._owner.encode(), ephemeral=True, make_parents=True)
                self._guard = path
            return self._guard

    def _forget_guard(self, guard: str) -> None:
        """The guard is gone or will be: locks taken from now on get a new one."""
        with self._mutex:
            if self._guard == guard:
                self._guard = ""
