"""Ledgers that are metadata alone: as ten bookies, three of which run, would have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.scale.filler import Filler
from benchmarks.scale.size import BOOKIES
from bk_spark.config import LedgerOptions
from bk_spark.log.stored.values import JOB_TAG, CommittedLedger, Totals
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata, new_ledger
from bk_spark.metadata.store import ANY_VERSION, Create, Delete, MetadataStore, parent_of
from bk_spark.metadata.znodes import Znodes

ENTRIES, BYTES = 10, 10_000
"""Of each ledger, by its metadata."""
TIME_MS = 1_700_000_000_000
COPIES = 3
REPLACED_EACH = 50
"""One ledger of so many had a bookie replaced while it was written: two fragments."""


def ensemble(bookies: Sequence[str], ledger_id: int) -> tuple[str, ...]:
    """Neighbours, round and round: a bookie holds three of ten ledgers."""
    assert len(bookies) == BOOKIES
    return tuple(bookies[(ledger_id + copy) % BOOKIES] for copy in range(COPIES))


def held_by_first(ledgers: int) -> Iterable[int]:
    """The ledgers that name the first bookie, ascending."""
    return (one for one in range(ledgers) if (one % BOOKIES) in (0, BOOKIES - 1, BOOKIES - 2))


def made_ledger(bookies: Sequence[str], ledger_id: int, tags: Mapping[str, bytes]) -> LedgerMetadata:
    """A closed ledger."""
    options = LedgerOptions(custom_metadata=dict(tags))
    made = new_ledger(ledger_id, options, ensemble(bookies, ledger_id), created_ms=TIME_MS, creator_token=ledger_id + 1)
    if ledger_id % REPLACED_EACH == 0:
        first, *others = made.last_fragment.ensemble
        spare = next(one for one in bookies[::-1] if one not in made.bookies)
        made = made.with_ensemble(ENTRIES // 2, (first, *others[:-1], spare))
    return made.closed_at(ENTRIES - 1, BYTES)


def tags_of(uid: str, job_id: str) -> dict[str, bytes]:
    return {LOG_TAG: uid.encode(), JOB_TAG: job_id.encode()}


def listed(ledger_id: int) -> CommittedLedger:
    """As the version of a log has it."""
    return CommittedLedger(ledger_id, ENTRIES - 1, BYTES, ENTRIES)


def total_of(ledgers: int) -> Totals:
    return Totals(ledgers, ledgers * ENTRIES, ledgers * BYTES)


def write_ledger(filler: Filler, znodes: Znodes, metadata: LedgerMetadata) -> None:
    path = znodes.ledger(metadata.ledger_id)
    filler.parent(parent_of(path))
    filler.add([Create(path, metadata.encode())])


def draw_ids(store: MetadataStore, znodes: Znodes, count: int) -> None:
    """Have the store's source of ids give out none below ``count``, as if so many ledgers had been created."""
    drawn = f"{znodes.id_generator}/drawn"
    with Filler(store) as filler:
        for _ in range(count):
            filler.add([Create(drawn), Delete(drawn, ANY_VERSION)])
