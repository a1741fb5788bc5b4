"""Finds the ledgers that name a lost bookie, and cuts them into groups for parallel tasks. The cutting is pure.

One task re-replicates one group. Groups are limited by bytes, so that tasks take about equally long, and by their number of
ledgers, because a ledger without entries costs round trips too. The largest come first, so that no long task begins last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.config import MIB
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

GROUP_LEDGERS = 100
GROUP_BYTES = 256 * MIB
"""Payload to copy: some seconds of work, so that a lost task repeats little. A larger ledger is a group of its own."""

MAX_LEDGERS = 100_000
"""Ledgers in one listing: bounds the planner's memory to some megabytes. The next listing finds the rest."""


@dataclass(frozen=True, slots=True)
class LostShare:
    """A ledger that names the lost bookie, with an estimate of the payload bytes that the bookie held; 0 if unknown."""

    ledger_id: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LedgersNaming:
    """The ledgers that name a bookie."""

    shares: tuple[LostShare, ...]
    unreadable: tuple[str, ...]
    """A sentence for each ledger whose metadata cannot be decoded: it may name the bookie."""


def ledgers_naming(
    store: MetadataStore, znodes: Znodes, bookie_id: str, progress: Callable[[int], None], limit: int = MAX_LEDGERS
) -> LedgersNaming:
    """The first ``limit`` ledgers that name the bookie. ``progress`` gets the number of ledgers read so far."""
    store.sync(znodes.root)
    ledgers, shares, unreadable, read = LedgerStore(store, znodes), list[LostShare](), list[str](), 0
    for page in ledger_pages(store, znodes):
        for metadata in ledgers.readable(page):
            if isinstance(metadata, BookKeeperError):
                unreadable.append(str(metadata))
            elif metadata is not None and bookie_id in metadata.bookies:
                shares.append(LostShare(metadata.ledger_id, lost_bytes(metadata, bookie_id)))
        read += len(page)
        progress(read)
        if len(shares) >= limit:
            break
    return LedgersNaming(tuple(shares[:limit]), tuple(unreadable))


def lost_bytes(metadata: LedgerMetadata, bookie_id: str) -> int:
    """The bookie's share of the fragments that name it, as if all entries had the same length. 0 for an open ledger."""
    if metadata.last_entry_id is None or metadata.last_entry_id < 0:
        return 0
    ranges = metadata.fragment_ranges(metadata.last_entry_id)
    entries = sum(last + 1 - first for fragment, first, last in ranges if bookie_id in fragment.ensemble)
    held = entries * metadata.write_quorum / metadata.ensemble_size
    return int(metadata.length * held / (metadata.last_entry_id + 1))


def groups(shares: Iterable[LostShare], nbytes: int = GROUP_BYTES, ledgers: int = GROUP_LEDGERS) -> list[Sequence[int]]:
    """Groups of ledger ids, the largest groups first. Each ledger is in one group."""
    found: list[tuple[int, list[int]]] = []
    for share in sorted(shares, key=lambda share: share.nbytes, reverse=True):
        if not found or found[-1][0] + share.nbytes > nbytes or len(found[-1][1]) >= ledgers:
            found.append((0, []))
        found[-1] = (found[-1][0] + share.nbytes, [*found[-1][1], share.ledger_id])
    return [ids for _, ids in found]
