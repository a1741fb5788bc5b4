"""Who may copy a ledger: the ledger's lock, and the proof that it was held all the time.

A lock is ephemeral, and while its holder stands still it may go, be taken by others, and a bookie may drop copies that no
metadata names (protocol rule 45): the holder's late compare-and-set would then name a bookie that lacks entries. So each
session that takes locks has a **guard**, an ephemeral znode whose name nobody ever uses again, made before the session's first
lock; and every change of metadata demands, in its own transaction, that the guard exists. If it does, the session was never
lost since, nor any lock that it took.

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
from bk_spark.metadata.store import MetadataStore, NoNodeError
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.metadata.znodes import Znodes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenLedger:
    """A ledger as it was when it was locked."""

    guard: str
    """What every change of its metadata must demand."""
    metadata: LedgerMetadata | None
    """None: there is no such ledger."""
    version: int
    """The metadata's."""
    mark: Mark | None


class ReplicationLock:
    """The locks of one process. Threads may share it; all methods wait for the metadata store."""

    def __init__(self, store: MetadataStore, znodes: Znodes, ledgers: LedgerStore, marks: UnderReplication, owner: str) -> None:
        """``owner`` is for people who look who works."""
        self._store = store
        self._znodes = znodes
        self._ledgers = ledgers
        self._marks = marks
        self._owner = owner
        self._mutex = threading.Lock()
        self._guard = ""
        self._owed: set[int] = set()
        """Ledgers that could not be unlocked yet."""

    def take(self, ledger_id: int) -> TakenLedger | None:
        """Lock a ledger. None if somebody else works on it.

        Raises what reading metadata and marks does; the lock is given back then, or goes with the session at the latest.
        """
        for _ in range(2):
            self._pay(ledger_id)
            guard = self._current_guard()
            if not self._marks.try_lock(ledger_id, self._owner):
                return None
            try:
                taken = self._looked_at(ledger_id, guard)
            except BaseException:
                self.give_back(ledger_id)
                raise
            if taken is not None:
                return taken
            self._forget(guard)
            self.give_back(ledger_id)
        raise MetadataUnavailableError(self._store.uri, "its session was lost again and again")

    def finish(self, taken: TakenLedger) -> bool:
        """The ledger is whole: take its mark away, unless it was reported again (protocol rule 56). Whether it is gone."""
        return taken.mark is None or self._marks.remove(taken.mark, taken.guard)

    def cut_off(self, ledger_id: int, guard: str) -> None:
        """Unlock a ledger whose copying was cut off. What it sent to the store may still arrive: the guard goes before the
        lock, so that it changes nothing then. All else that is under way under this guard fails, too.
        """
        self._forget(guard)
        try:
            with contextlib.suppress(NoNodeError):
                self._store.delete(guard)
        except MetadataUnavailableError as problem:
            self._owe(ledger_id, problem)
        else:
            self.give_back(ledger_id)

    def give_back(self, ledger_id: int) -> None:
        """Unlock. Where the store does not answer the lock goes with this session, or when this process takes it again."""
        try:
            self._marks.unlock(ledger_id)
        except MetadataUnavailableError as problem:
            self._owe(ledger_id, problem)

    def _looked_at(self, ledger_id: int, guard: str) -> TakenLedger | None:
        """All that is to be known, in one go; None if the session of the guard is gone."""
        paths = [guard, self._znodes.ledger(ledger_id), self._znodes.under_replicated(ledger_id)]
        proof, value, marked = self._store.get_many(paths)
        if proof is None:
            return None
        mark = None if marked is None else self._marks.decoded(ledger_id, marked)
        if value is not None:
            return TakenLedger(guard, LedgerMetadata.decode(ledger_id, value.value), value.version, mark)
        self._store.sync(paths[1])  # nothing is said to be gone before that
        try:
            return TakenLedger(guard, *self._ledgers.versioned(ledger_id), mark)
        except NoSuchLedgerError:
            return TakenLedger(guard, None, 0, mark)

    def _owe(self, ledger_id: int, problem: MetadataUnavailableError) -> None:
        self._owed.add(ledger_id)
        logger.warning("the lock of ledger %d was not given back yet: %s", ledger_id, problem)

    def _pay(self, ledger_id: int) -> None:
        if ledger_id in self._owed:
            self._marks.unlock(ledger_id)
            self._owed.discard(ledger_id)

    def _current_guard(self) -> str:
        with self._mutex:
            if not self._guard:
                path = self._znodes.replicator(uuid.uuid4().hex)
                self._store.create(path, self._owner.encode(), ephemeral=True, make_parents=True)
                self._guard = path
            return self._guard

    def _forget(self, guard: str) -> None:
        """It went with its session: what is locked from now on gets another one."""
        with self._mutex:
            if self._guard == guard:
                self._guard = ""
