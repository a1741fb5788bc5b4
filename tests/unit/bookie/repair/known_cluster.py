"""A cluster around one bookie that repairs itself: metadata, and other bookies whose entries are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bk_spark.config import LedgerOptions
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import BookieUnavailableError, BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState, new_ledger

US = "bookie-1"
OURS = f"{US} b2 b3"
OTHERS = "b2 b3 b4"
"""Ensembles, with this bookie and without."""


@dataclass
class KnownCluster:
    """The metadata of some ledgers, and other bookies that hold what ``batch`` makes."""

    batch: Callable[..., EncodedBatch]
    ledgers: dict[int, LedgerMetadata | BookKeeperError] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """Ledgers that a recovery can close, with their last entries."""
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    recoveries: list[int] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)
    on_read: Callable[[int, int, int], None] = lambda *_: None
    on_metadata: Callable[[], None] = lambda: None
    on_recover: Callable[[], None] = lambda: None
    leave_out: int | None = None

    def ledger_ids(self) -> Iterator[int]:
        return iter(sorted(self.ledgers))

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        self.on_metadata()
        self.looks += ledger_ids
        return [self.ledgers.get(one) for one in ledger_ids]

    def recover(self, ledger_id: int) -> LedgerMetadata:
        self.recoveries.append(ledger_id)
        self.on_recover()
        if ledger_id not in self.ends:
            raise BookieUnavailableError(ledger_id, 0, ("b2: away",))
        metadata = self.ledgers[ledger_id]
        assert isinstance(metadata, LedgerMetadata)
        self.ledgers[ledger_id] = closed = metadata.closed_at(self.ends[ledger_id], 10)
        return closed

    def write_key(self, metadata: LedgerMetadata) -> bytes:
        return metadata.master_key

    def check_key(self, metadata: LedgerMetadata) -> None:
        """All others have the ledger's own key."""

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        self.reads.append((metadata.ledger_id, first, last))
        self.on_read(metadata.ledger_id, first, last)
        pattern = metadata.slot_pattern(metadata.fragment_of(first).ensemble.index(without))
        for one in range(first, last + 1):
            if pattern.holds(one) and one != self.leave_out:
                yield self.batch(metadata.ledger_id, one, one, pattern=pattern)

    def add(
        self,
        ledger_id: int,
        *fragments: tuple[int, str],
        last: int | None = None,
        state: LedgerState = LedgerState.OPEN,
        quorum: int = 3,
    ) -> LedgerMetadata:
        """A ledger whose fragments begin at an entry, on the bookies that a text names; CLOSED with ``last``."""
        options = LedgerOptions(ensemble_size=3, write_quorum=quorum, ack_quorum=2)
        ensembles = tuple(Fragment(first, tuple(names.split())) for first, names in fragments)
        made = new_ledger(ledger_id, options, ensembles[0].ensemble, created_ms=0, creator_token=1)
        made = replace(made, fragments=ensembles, state=state)
        made = made if last is None else made.closed_at(last, 10)
        self.ledgers[ledger_id] = made
        return made
