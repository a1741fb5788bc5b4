"""The metadata store of a run: one ledger's value, its versions, and compare-and-set; the lock of its re-replication.

A read may be answered by a server that lags behind, though never with less than the session has seen. Lost requests and
replies are the network's business; a request whose client was told that the connection broke may still arrive.
"""

from __future__ import annotations

from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.world.ledger_lock import LedgerLock
from tests.simulation.world.messages import (
    METADATA,
    BlockingCall,
    Envelope,
    GetLocked,
    GetMetadata,
    GiveLockBack,
    GuardMissing,
    LedgerMarked,
    MakeGuard,
    MarkLedger,
    MetadataMissing,
    MetadataSet,
    MetadataValue,
    SetMetadata,
    TakeLock,
)
from tests.simulation.world.replacements import not_wider
from tests.simulation.world.world import Wake, World

SOMEBODY = "somebody"
"""Who edits what is no client's business here."""


class SimulatedMetadataStore:
    """``stale_percent`` of the reads that may come from a server that lags do."""

    name = METADATA

    def __init__(self, world: World, first: LedgerMetadata, stale_percent: int) -> None:
        self._world = world
        self.ledger_id = first.ledger_id
        self._values = [first.encode()]
        self.stale_percent = stale_percent
        self.is_deleted = False
        self.lock = LedgerLock()
        world.actors[self.name] = self
        world.observed.stores(self.name, 0, first, is_edit=False)

    def receive(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, (MakeGuard, TakeLock, GiveLockBack, GetLocked)):
            self._of_session(envelope, body)
        elif isinstance(body, BlockingCall):
            self._world.reply(envelope, body.made())
        elif self.is_deleted:
            self._world.reply(envelope, MetadataMissing())
        elif isinstance(body, MarkLedger):
            self._world.count("marks")
            self._world.invariants.history.marked.update(body.bookies)
            self._world.reply(envelope, LedgerMarked())
        elif isinstance(body, GetMetadata):
            version = len(self._values) - 1 if body.is_synced else self._version_for(body.not_before)
            self._world.reply(envelope, MetadataValue(self._values[version], version))
        elif isinstance(body, SetMetadata):
            is_guarded = not body.guard or body.guard in self.lock.guards
            self._world.reply(envelope, MetadataSet(self.set(envelope.source, body)) if is_guarded else GuardMissing())

    def wake(self, wake: Wake) -> None:
        wake()

    def _of_session(self, envelope: Envelope, body: MakeGuard | TakeLock | GiveLockBack | GetLocked) -> None:
        """What is not current gets no answer: its client sees the connection break."""
        if not self.lock.is_current(envelope.source, body.session, envelope.number):
            self._world.break_off(envelope)
        elif not isinstance(body, GetLocked):
            self._world.reply(envelope, self.lock.answer(envelope.source, body))
        elif body.guard and body.guard not in self.lock.guards:
            self._world.reply(envelope, GuardMissing())
        elif self.is_deleted:
            self._world.reply(envelope, MetadataMissing())
        else:
            self._world.reply(envelope, MetadataValue(self._values[-1], len(self._values) - 1))

    def edit(self, number: int) -> None:
        """Somebody else changes what is no client's business here; a closed ledger is left alone."""
        current = LedgerMetadata.decode(self.ledger_id, self._values[-1])
        if not current.is_closed and not self.is_deleted:
            edited = current.with_custom(f"edit {number}", b"")
            self.set(SOMEBODY, SetMetadata(self.ledger_id, edited.encode(), len(self._values) - 1, "the same, edited"))

    def delete(self) -> None:
        self._world.note(self.name, "the ledger is deleted")
        self.is_deleted = True

    @property
    def newest(self) -> int:
        return len(self._values) - 1

    def seen_by(self, not_before: int) -> tuple[bytes, int]:
        """Value and version that a read finds of a session that has seen version ``not_before``."""
        version = self._version_for(not_before)
        return self._values[version], version

    def _version_for(self, not_before: int) -> int:
        newest = len(self._values) - 1
        oldest = max(0, not_before)
        if newest > oldest and self._world.choices.chance(self.stale_percent, "stale read"):
            self._world.count("stale metadata reads")
            return newest - self._world.choices.between(1, newest - oldest, "versions behind")
        return newest

    def set(self, source: str, request: SetMetadata) -> int | None:
        """The new version; None if the one that is expected is not there."""
        if request.expected_version != len(self._values) - 1:
            self._world.count("lost compare-and-sets")
            return None
        self._world.note(self.name, f"{source} sets version {len(self._values)}: {request.text}")
        self._values.append(request.value)
        written, version = LedgerMetadata.decode(self.ledger_id, request.value), len(self._values) - 1
        if request.must_widen:
            problem = not_wider(self._world.invariants.history.current, written, self._world.racks)
            self._world.invariants.require(not problem, "I15", problem)
        self._world.invariants.metadata_written(written, request.leaving)
        self._world.observed.stores(source, version, written, is_edit=source == SOMEBODY)
        return version
