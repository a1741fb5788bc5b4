"""What is to be copied for one bookie that is lost, found in the ledgers' metadata and cut into groups. The cutting is pure.

A group is what one task copies: by bytes, so that tasks take about as long, and by number, for a ledger without entries costs
its round trips too. The largest groups come first: whoever is free takes the next one, and none that is long begins last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.config import MIB
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

GROUP_LEDGERS = 100
GROUP_BYTES = 256 * MIB
"""Of payload to copy: some seconds of work, so that little is done again when a task is lost. A larger ledger is a group."""

MAX_LEDGERS = 100_000
"""Ledgers that one listing gives: bounds the memory of whoever plans, some megabytes. What is beyond is for the next one."""


@dataclass(frozen=True, slots=True)
class LostShare:
    """A ledger that names the lost bookie, and about what it held of it, in payload bytes; 0 where that is not known."""

    ledger_id: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Naming:
    """The ledgers that name a bookie."""

    shares: tuple[LostShare, ...]
    unreadable: tuple[str, ...]
    """Ledgers whose metadata cannot be read: nobody can tell whether they name it. A sentence each."""


def naming(
    store: MetadataStore, znodes: Znodes, bookie_id: str, tell: Callable[[int], None], limit: int = MAX_LEDGERS
) -> Naming:
    """Of all ledgers that there are now, the first ``limit`` that name the bookie. ``tell`` hears how many were looked at."""
    store.sync(znodes.root)
    ledgers, shares, unreadable, looked_at = LedgerStore(store, znodes), list[LostShare](), list[str](), 0
    for page in ledger_pages(store, znodes):
        for metadata in ledgers.readable(page):
            if isinstance(metadata, BookKeeperError):
                unreadable.append(str(metadata))
            elif metadata is not None and names(metadata, bookie_id):
                shares.append(LostShare(metadata.ledger_id, lost_bytes(metadata, bookie_id)))
        looked_at += len(page)
        tell(looked_at)
        if len(shares) >= limit:
            break
    return Naming(tuple(shares[:limit]), tuple(unreadable))


def names(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether any fragment does, with entries or without."""
    return any(bookie_id in fragment.ensemble for fragment in metadata.fragments)


def lost_bytes(metadata: LedgerMetadata, bookie_id: str) -> int:
    """As if all entries were equally long: the bookie's share of the fragments that name it. 0 for a ledger that is open."""
    if metadata.last_entry_id is None or metadata.last_entry_id < 0:
        return 0
    ends = [last_entry_of(metadata, index) for index in range(len(metadata.fragments))]
    entries = sum(
        end + 1 - fragment.first_entry_id
        for fragment, end in zip(metadata.fragments, ends, strict=True)
        if bookie_id in fragment.ensemble and end is not None and end >= fragment.first_entry_id
    )
    held = entries * metadata.write_quorum / metadata.ensemble_size
    return int(metadata.length * held / (metadata.last_entry_id + 1))


def groups(shares: Iterable[LostShare], nbytes: int = GROUP_BYTES, ledgers: int = GROUP_LEDGERS) -> list[Sequence[int]]:
    """Ledger ids, each in one group; the largest groups first."""
    found: list[tuple[int, list[int]]] = []
    for share in sorted(shares, key=lambda share: share.nbytes, reverse=True):
        if not found or found[-1][0] + share.nbytes > nbytes or len(found[-1][1]) >= ledgers:
            found.append((0, []))
        found[-1] = (found[-1][0] + share.nbytes, [*found[-1][1], share.ledger_id])
    return [ids for _, ids in found]
