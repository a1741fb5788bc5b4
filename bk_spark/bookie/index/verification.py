"""Holds the tables of the index against each other, from the stored batches up to what is kept in memory.

The batches must be those that their segment tallies, the segments those of the segment above or of the ledger's summary, and
the summaries those of their bucket, which was verified when the index was opened. So a stored batch that is lost, changed or
back from an older page is found whatever hides it: a damaged page, a wrong pointer, or an index that SQLite keeps for itself.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from bk_spark.bookie.index import segments
from bk_spark.bookie.index.sqlite_database import BUCKET_OF_LEDGER, Columns
from bk_spark.bookie.index.sqlite_tables import BATCHES, BUCKETS, LEDGERS, SEGMENTS, Tables, columns_of_entry_log
from bk_spark.bookie.index.values import NO_TALLY, IndexState, LedgerSummary, Tally
from bk_spark.errors import CorruptionError

MAX_ENTRY_ID = (1 << 63) - 1

_TOP_SEGMENTS = "ledger_id = ? AND level IN (0, 1, 2, 3, 4, 5) AND number < 256"
"""The segments that a ledger's summary tallies (segments.py)."""


def load(tables: Tables, state: IndexState) -> segments.IndexMemory:
    """What is kept in memory, verified against ``state``. Raises CorruptionError."""
    buckets, logs = segments.Buckets(), {}
    found = found_logs = NO_TALLY
    for bucket, size, crc_sum, crc in tables.select(BUCKETS):
        buckets.put(bucket, Tally(size, crc_sum))
        found = found.plus(size > 0, crc)
    for log in tables.entry_logs():
        logs[log.file_id] = log
        found_logs = found_logs.plus(1, columns_of_entry_log(log)[-1])
    if found != state.buckets:
        raise tables.database.damage(f"{found.size} buckets of ledgers are not the {state.buckets.size} that were committed")
    if found_logs != state.entry_logs:
        raise tables.database.damage(f"{found_logs.size} entry logs are not the {state.entry_logs.size} that were committed")
    return segments.IndexMemory(state, buckets, logs)


class VerifiedIndex:
    """The methods of LedgerIndex that prove what is there and what is not. All raise CorruptionError, StorageError."""

    def __init__(self, tables: Tables, memory: segments.IndexMemory) -> None:
        self._tables = tables
        self._memory = memory

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        summary = self._tables.summary(ledger_id)
        if summary is None and self._tables.least("ledger_id", BATCHES, "ledger_id = ?", (ledger_id,)) is not None:
            raise self._damage(f"it has batches of ledger {ledger_id}, and no summary of it")
        return summary

    def verify_ledger(self, ledger_id: int) -> None:
        self._bucket(segments.bucket_of(ledger_id))
        self.summary(ledger_id)

    def verify_entry(self, ledger_id: int, entry_id: int) -> None:
        self._bucket(segments.bucket_of(ledger_id))
        summary = self.summary(ledger_id)
        if summary is None or entry_id > summary.highest_entry_id:
            return
        for number in segments.segments_before(entry_id, summary.max_span):
            self._batches(ledger_id, number)
            self._segments_above(summary, number)

    def check(self, full: bool) -> Iterator[int]:
        yield self._all_tallies()
        for bucket in range(segments.BUCKETS):
            if self._memory.buckets.tally(bucket).size:
                yield self._bucket(bucket)
        if full:
            yield from self._all_batches()

    def _batches(self, ledger_id: int, number: int) -> list[Columns]:
        """The stored batches of a segment of level 0, which must be those that it tallies."""
        values = (ledger_id, segments.first_id(number), min(segments.first_id(number + 1) - 1, MAX_ENTRY_ID))
        rows = list(self._tables.select(BATCHES, "ledger_id = ? AND first_entry_id BETWEEN ? AND ?", values))
        expected = self._tables.segment(ledger_id, 0, number) or NO_TALLY
        if _tally(rows) != expected:
            span = f"entries {values[1]} to {values[2]} of ledger {ledger_id}"
            raise self._damage(f"{len(rows)} batches of {span} are not the {expected.size} that were committed")
        return rows

    def _segments_above(self, summary: LedgerSummary, number: int) -> None:
        """The segments that tally segment ``number`` of level 0, level by level, up to the summary."""
        level = 0
        while segments.parent_of(number):
            self._siblings(summary.ledger_id, level, segments.parent_of(number))
            level, number = level + 1, segments.parent_of(number)
        self._top(summary)

    def _siblings(self, ledger_id: int, level: int, parent: int) -> int:
        """The segments of a level that must be those which ``parent``, one level up, tallies. Returns how many."""
        numbers = segments.children_of(parent)
        where, values = "ledger_id = ? AND level = ? AND number BETWEEN ? AND ?", (ledger_id, level, numbers[0], numbers[-1])
        tally = _tally(self._tables.select(SEGMENTS, where, values))
        self._expect(ledger_id, tally, self._tables.segment(ledger_id, level + 1, parent) or NO_TALLY)
        return tally.size

    def _top(self, summary: LedgerSummary) -> int:
        """The segments that must be those which the summary tallies. Returns how many."""
        tally = _tally(self._tables.select(SEGMENTS, _TOP_SEGMENTS, (summary.ledger_id,)))
        self._expect(summary.ledger_id, tally, summary.segments)
        return tally.size

    def _expect(self, ledger_id: int, found: Tally, expected: Tally) -> None:
        if found != expected:
            raise self._damage(f"{found.size} segments of ledger {ledger_id} are not the {expected.size} that were committed")

    def _bucket(self, bucket: int) -> int:
        """The summaries of a bucket, which must be those that it tallies. Returns how many."""
        found = _tally(self._tables.select(LEDGERS, f"{BUCKET_OF_LEDGER} = ?", (bucket,)))
        expected = self._memory.buckets.tally(bucket)
        if found != expected:
            raise self._damage(f"{found.size} ledgers of bucket {bucket} are not the {expected.size} that were committed")
        return found.size

    def _all_tallies(self) -> int:
        """The file still says what is in memory."""
        if self._tables.state() != self._memory.state:
            raise self._damage("its state is not the one that was committed last")
        found = load(self._tables, self._memory.state)
        return 1 + found.state.buckets.size + len(found.entry_logs)

    def _all_batches(self) -> Iterator[int]:
        """Ledger by ledger, also those without a summary; at last the live bytes, if nothing changed meanwhile."""
        generation = self._memory.state.generation
        live: defaultdict[int, int] = defaultdict(int)
        ledger_id = self._next_ledger(-1)
        while ledger_id is not None:
            yield from self._ledger_batches(ledger_id, live)
            ledger_id = self._next_ledger(ledger_id)
        if generation == self._memory.state.generation:
            self._live_bytes(live)

    def _ledger_batches(self, ledger_id: int, live: defaultdict[int, int]) -> Iterator[int]:
        """All stored batches and segments of a ledger. ``live`` sums up their bytes by entry log."""
        summary = self._tables.summary(ledger_id)
        if summary is None:
            raise self._damage(f"it has batches or segments of ledger {ledger_id}, and no summary of it")
        found = self._tables.select(SEGMENTS, "ledger_id = ?", (ledger_id,))
        parents = {(level, segments.parent_of(number)) for _, level, number, *_ in found}
        yield self._top(summary) + sum(self._siblings(ledger_id, level, parent) for level, parent in parents if parent)
        number = self._next_segment(ledger_id, -1)
        while number is not None:
            rows = self._batches(ledger_id, number)
            for *_, file_id, _offset, length, _crc in rows:
                live[file_id] += length
            yield len(rows)
            number = self._next_segment(ledger_id, number)

    def _live_bytes(self, live: dict[int, int]) -> None:
        logs = self._memory.entry_logs
        for file_id in live.keys() | logs.keys():
            known = logs[file_id].live_bytes if file_id in logs else 0
            if live.get(file_id, 0) != known:
                raise self._damage(f"batches refer to {live.get(file_id, 0)} bytes of entry log {file_id}, not to {known}")

    def _next_ledger(self, ledger_id: int) -> int | None:
        """The lowest ledger above ``ledger_id`` that any table has."""
        tables = (LEDGERS, SEGMENTS, BATCHES)
        found = [self._tables.least("ledger_id", table, "ledger_id > ?", (ledger_id,)) for table in tables]
        return min((one for one in found if one is not None), default=None)

    def _next_segment(self, ledger_id: int, number: int) -> int | None:
        """The lowest segment of level 0 above ``number`` that is there or has stored batches."""
        segment = self._tables.least("number", SEGMENTS, "ledger_id = ? AND level = 0 AND number > ?", (ledger_id, number))
        after = segments.first_id(number + 1) - 1
        row = self._tables.least("first_entry_id", BATCHES, "ledger_id = ? AND first_entry_id > ?", (ledger_id, after))
        found = [segment, None if row is None else segments.segment_of(row)]
        return min((one for one in found if one is not None), default=None)

    def _damage(self, problem: str) -> CorruptionError:
        return self._tables.database.damage(problem)


def _tally(rows: Iterable[Columns]) -> Tally:
    crcs = [columns[-1] for columns in rows]
    return NO_TALLY.plus(len(crcs), sum(crcs))
