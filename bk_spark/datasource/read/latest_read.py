"""A batch read with ``view=latest``: a task reads whole lanes, in two passes, and gives the newest row of each key.

Ref: DESIGN.md, "The newest row of each key"; ``log/rows/latest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from bk_spark.client.ledger.stretches import Stretch, cut
from bk_spark.datasource.connection import connect
from bk_spark.datasource.read.read_task import Reading, Sources, as_declared, opener_of
from bk_spark.datasource.spark_schema import as_stored, to_arrow
from bk_spark.log.rows.latest.chosen import choose
from bk_spark.log.rows.latest.shares import lanes_of_ledgers, shares
from bk_spark.log.rows.latest.view import LatestRows
from bk_spark.log.rows.read_rows import STRETCH_BYTES, TIERED_STRETCH_BYTES
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.reading import joined

_HANDLES = 8
"""Handles that are kept, those used last: a ledger's stretches follow each other, or come by with those of few others."""


def lane_portions(
    stretches: Sequence[Stretch], snapshot: LogSnapshot, max_bytes: int, min_partitions: int
) -> list[tuple[Stretch, ...]]:
    """What each task reads: one lane, or several up to ``max_bytes``, or to what gives ``min_partitions`` of them."""
    filled = [stretch for stretch in stretches if stretch.entries]
    total = sum(stretch.length for stretch in filled)
    return shares(filled, lanes_of_ledgers(snapshot), max(1, min(max_bytes, -(-total // min_partitions))))


def newest_batches(
    reading: Reading, latest: LatestRows, stretches: Iterable[Stretch], sources: Sources
) -> Iterator[pa.RecordBatch]:
    """As ``Reading.batches``, of the newest rows alone."""
    return joined(_newest(reading, latest, stretches, sources))


def _newest(reading: Reading, latest: LatestRows, stretches: Iterable[Stretch], sources: Sources) -> Iterator[pa.RecordBatch]:
    options = reading.options
    opener = opener_of(connect(options.metadata, options.client), options, sources)
    schema, stored = to_arrow(reading.schema), as_stored(reading.schema)
    short = [one for stretch in stretches for one in cut(stretch, _stretch_bytes(stretch, sources))]
    chosen = choose(_rows(opener, list(enumerate(short)), latest.of_keys), len(short), latest)
    wanted = [(number, one) for number, one in enumerate(short) if chosen.has_some(number)]
    asked = latest.of_rows(stored, sources.columns() if options.include_metadata else {})
    number, first = -1, 0
    for place, rows in _rows(opener, wanted, asked):
        number, first = place, first if place == number else 0
        ledger_id = short[number].ledger_id
        given = latest.given(chosen.of(number, first, rows), stored, f"ledger {ledger_id} of log '{opener.name}'")
        first += rows.num_rows
        if given.num_rows:
            yield as_declared(given, schema, opener.name, ledger_id, conditions=True)


def _rows(
    opener: LogLedgerOpener, stretches: Iterable[tuple[int, Stretch]], asked: AskedRows
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each stretch, with its number."""
    convert, opened = asked.of_entries(), lru_cache(_HANDLES)(opener)
    for number, stretch in stretches:
        ledger = opened(stretch.ledger_id)
        for rows in opener.rows(ledger, stretch.first_entry_id, stretch.last_entry_id, asked, convert):
            yield number, rows


def _stretch_bytes(stretch: Stretch, sources: Sources) -> int:
    return TIERED_STRETCH_BYTES if stretch.ledger_id in sources.places else STRETCH_BYTES
