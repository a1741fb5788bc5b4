"""What has happened in a run, told by those to whom it happened: the ground truth of the invariants.

Never the state of a client: an entry is acked because the application was told so, a bookie holds an entry because it
said so to somebody or could have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bk_spark.entries.batch import NO_ENTRY
from bk_spark.metadata.ledger_metadata import LedgerMetadata


@dataclass(slots=True)
class History:
    payloads: list[bytes] = field(default_factory=list)
    """What the application appended, in order: payload i is to become entry i."""
    acked: int = NO_ENTRY
    """The highest entry that the application was told to be confirmed."""
    written: int = NO_ENTRY
    """The highest entry that a writer that defers syncs was told to be written."""
    metadata: list[LedgerMetadata] = field(default_factory=list)
    """Every value that the store held; the index is the version."""
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    """Entries that a bookie made durable and said so; what it lost later stays here."""
    fenced: set[str] = field(default_factory=set)
    """Bookies that answered a fencing request: the fence was durable."""
    forgotten: set[str] = field(default_factory=set)
    """Bookies that deleted what they had, since the closed ledger named others alone."""
    lossy: set[str] = field(default_factory=set)
    """Bookies whose disks lost or damaged what was durable."""
    foreign: set[str] = field(default_factory=set)
    """Bookies that may hold another ledger of the same id, and then have nothing of this one."""
    read_up_to: int = NO_ENTRY
    """The highest entry that any reader was given as confirmed."""
    marked: set[str] = field(default_factory=set)
    """Bookies that a mark of under-replication names."""
    replaced: int = 0
    """How often a re-replication gave a slot to another bookie."""
    told_lac: int = NO_ENTRY
    """The highest last add confirmed that any bookie stored."""
    shown_lac: int = NO_ENTRY
    """The highest last add confirmed that any bookie answered."""

    @property
    def current(self) -> LedgerMetadata:
        return self.metadata[-1]

    @property
    def last_entry_id(self) -> int | None:
        """Where the ledger ends; None while it is not closed."""
        return self.current.last_entry_id

    def length(self, last_entry_id: int) -> int:
        return sum(len(one) for one in self.payloads[: last_entry_id + 1])

    def holders(self, entry_id: int, metadata: LedgerMetadata) -> int:
        """How many bookies of an entry's write set acknowledged it."""
        ensemble = metadata.fragment_of(entry_id).ensemble
        size = metadata.ensemble_size
        members = (ensemble[(entry_id + k) % size] for k in range(metadata.write_quorum))
        return sum(entry_id in self.acknowledged.get(member, ()) for member in members)
