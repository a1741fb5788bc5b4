"""Which cached rows a checkpoint joins into one record: many single appends become one row.

A small record costs a header, an Arrow message and a row of the index, some 500 bytes, however small its entry is. A run is
joined if its batches follow each other and hold ids that no other cached row of the ledger may hold; the joined row bears the
highest sequence of its parts, and nothing that is newer than one of them, and older than another, is hidden by it.

Worked example: 0–4 (sequence 5), 0–99 (7), 5–9 (9). Joined as 0–9 (9), the first part would hide what 7 says of 0–4.

Ref: docs/rules.md, storage rule 1; docs/formats.md, "A batch of entries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bk_spark.bookie.index_rows import BatchRow
from bk_spark.config import KIB, MAX_BATCH_ENTRIES, MIB
from bk_spark.entry import NO_ENTRY, EncodedBatch, coalesce
from bk_spark.errors import CorruptionError

JOINED_BELOW_BYTES = 8 * KIB
"""Bodies from this size on stay as they are: joining costs eight bytes an entry and gains less than that."""

MAX_JOINED_BYTES = MIB
"""The parts of one joined record: bounds what a read of one entry has to load."""


def runs(rows: list[BatchRow]) -> Iterator[list[BatchRow]]:
    """``rows``, by first entry id and sequence, in their order; those that may be joined together."""
    run: list[BatchRow] = []
    size = 0
    for row, may_join in _joinable(rows):
        if run and not (may_join and size < MAX_JOINED_BYTES and _goes_on(run, row)):
            yield run
            run, size = [], 0
        run.append(row)
        size += row.size_bytes if may_join else MAX_JOINED_BYTES  # what may not be joined ends its run
    if run:
        yield run


def joined(run: list[BatchRow]) -> Iterable[tuple[EncodedBatch, int]]:
    """The batches to store for a run of rows in memory, with their sequences: one, or each if they do not fit together."""
    parts = [(row.batch, row.sequence) for row in run if row.batch is not None]
    try:
        return [(coalesce([batch for batch, _ in parts]), max(sequence for _, sequence in parts))]
    except CorruptionError:
        return parts  # nobody has looked into them yet: what a client sent is kept as it came


def _joinable(rows: list[BatchRow]) -> Iterator[tuple[BatchRow, bool]]:
    """Each row, and whether it is small, in memory, and alone with its ids."""
    reached = NO_ENTRY
    for place, row in enumerate(rows):
        follows = place + 1 == len(rows) or row.last_entry_id < rows[place + 1].first_entry_id
        is_alone = reached < row.first_entry_id and follows
        reached = max(reached, row.last_entry_id)
        yield row, is_alone and row.batch is not None and len(row.batch.body) < JOINED_BELOW_BYTES


def _goes_on(run: list[BatchRow], row: BatchRow) -> bool:
    before, batch = run[-1].batch, row.batch
    assert before is not None
    assert batch is not None
    fits = row.last_entry_id - run[0].first_entry_id < MAX_BATCH_ENTRIES
    return fits and before.header.is_followed_by(batch.header)
