"""Holds the tables of the index against each other, from the rows up to what is kept in memory.

Rows must be those that their segment tallies, segments those of the segment above or of the ledger's summary, summaries those
of their bucket, which was verified when the index was opened. So a row that is lost, changed or back from an older page is
found whatever hides it: a damaged page, a wrong pointer, an index of SQLite's own.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from bk_spark.bookie.index.rows import NO_TALLY, IndexState, LedgerSummary, Tally, entry_log_crc
from bk_spark.bookie.index.segments import (
    BUCKETS,
    Buckets,
    IndexMemory,
    bucket_of,
    children_of,
    first_id,
    parent_of,
    segment_of,
    segments_before,
)
from bk_spark.bookie.index.sqlite_tables import TOP_LEVELS, Tables
from bk_spark.bookie.logs.mark import EntryLogRow

MAX_ENTRY_ID = (1 << 63) - 1


def load(tables: Tables, state: IndexState) -> IndexMemory:
    """What is kept in memory, verified against ``state``. Raises CorruptionError."""
    buckets, logs = Buckets(), {}
    found, found_logs = NO_TALLY, NO_TALLY
    for bucket, crc, tally in tables.buckets():
        buckets.put(bucket, tally)
        found = found.plus(tally.size > 0, crc)
    for log in tables.entry_logs():
        logs[log.file_id] = log
        found_logs = found_logs.plus(1, entry_log_crc(log))
    if found != state.buckets:
        raise tables.database.damage(f"{found.size} buckets of ledgers are not the {state.buckets.size} that were committed")
    if found_logs != state.logs:
        raise tables.database.damage(f"{found_logs.size} entry logs are not the {state.logs.size} that were committed")
    return IndexMemory(state, buckets, logs)


class Verification:
    """To be used within ``database.translated``. Everything raises CorruptionError."""

    def __init__(self, tables: Tables, memory: IndexMemory) -> None:
        self._tables = tables
        self._memory = memory

    def ledger(self, ledger_id: int) -> LedgerSummary | None:
        """The last summary of a ledger that was committed, None if there is none."""
        self._bucket(bucket_of(ledger_id))
        summary = self._tables.summary(ledger_id)
        if summary is None and self._tables.has_rows(ledger_id):
            raise self._damage(f"it has rows of ledger {ledger_id}, and no summary of it")
        return summary

    def entry(self, ledger_id: int, entry_id: int) -> None:
        """All rows that may hold an entry are there."""
        summary = self.ledger(ledger_id)
        if summary is None or entry_id > summary.highest_entry_id:
            return
        for number in segments_before(entry_id, summary.max_span):
            self._rows(ledger_id, number)
            self._path(summary, number)

    def steps(self, full: bool) -> Iterator[int]:
        """LedgerIndex.check."""
        yield self._all_tallies()
        for bucket in range(BUCKETS):
            if self._memory.buckets.tally(bucket).size:
                yield self._bucket(bucket)
        if full:
            yield from self._all_rows()

    # --- from the rows up

    def _rows(self, ledger_id: int, number: int) -> list[tuple[int, int]]:
        """The rows of a segment of level 0 are those that it tallies; the entry log and length of each."""
        values = (ledger_id, first_id(number), min(first_id(number + 1) - 1, MAX_ENTRY_ID))
        found = [
            (row[6], row[8], row[9]) for row in self._tables.rows("ledger_id = ? AND first_entry_id BETWEEN ? AND ?", values)
        ]
        expected = self._tables.segment(ledger_id, 0, number) or NO_TALLY
        if _tally(crc for *_, crc in found) != expected:
            span = f"entries {values[1]} to {values[2]} of ledger {ledger_id}"
            raise self._damage(f"{len(found)} batches of {span} are not the {expected.size} that were committed")
        return [(file_id, length) for file_id, length, _ in found]

    def _path(self, summary: LedgerSummary, number: int) -> None:
        """The segments that tally this one, level by level, and the summary."""
        level = 0
        while parent_of(number):
            self._siblings(summary.ledger_id, level, parent_of(number))
            level, number = level + 1, parent_of(number)
        self._top(summary)

    def _siblings(self, ledger_id: int, level: int, parent: int) -> int:
        """All segments of a level that the one above tallies; their number."""
        numbers = children_of(parent)
        values = (ledger_id, level, numbers.start, numbers.stop - 1)
        found = self._tables.segments("ledger_id = ? AND level = ? AND number BETWEEN ? AND ?", values)
        tally = _tally(crc for _, _, crc in found)
        self._expect(ledger_id, tally, self._tables.segment(ledger_id, level + 1, parent) or NO_TALLY)
        return tally.size

    def _top(self, summary: LedgerSummary) -> int:
        found = self._tables.segments(f"ledger_id = ? AND {TOP_LEVELS}", (summary.ledger_id,))
        tally = _tally(crc for _, _, crc in found)
        self._expect(summary.ledger_id, tally, summary.segments)
        return tally.size

    def _expect(self, ledger_id: int, found: Tally, expected: Tally) -> None:
        if found != expected:
            raise self._damage(f"{found.size} segments of ledger {ledger_id} are not the {expected.size} that were committed")

    def _bucket(self, bucket: int) -> int:
        found, expected = self._tables.bucket_tally(bucket), self._memory.buckets.tally(bucket)
        if found != expected:
            raise self._damage(f"{found.size} ledgers of bucket {bucket} are not the {expected.size} that were committed")
        return found.size

    # --- everything

    def _all_tallies(self) -> int:
        """The file still says what is in memory."""
        state = self._tables.state()
        if state != self._memory.state:
            raise self._damage("its state is not the one that was committed last")
        found = load(self._tables, self._memory.state)
        return 1 + found.state.buckets.size + len(found.logs)

    def _all_rows(self) -> Iterator[int]:
        """Ledger by ledger, those without a summary too; at last, if nothing changed meanwhile, the live bytes."""
        generation = self._memory.state.generation
        live: defaultdict[int, int] = defaultdict(int)
        ledger_id = self._next_ledger(-1)
        while ledger_id is not None:
            yield from self._ledger_rows(ledger_id, live)
            ledger_id = self._next_ledger(ledger_id)
        if generation == self._memory.state.generation:
            self._live_bytes(live, self._memory.logs)

    def _ledger_rows(self, ledger_id: int, live: defaultdict[int, int]) -> Iterator[int]:
        summary = self._tables.summary(ledger_id)
        if summary is None:
            raise self._damage(f"it has rows or segments of ledger {ledger_id}, and no summary of it")
        yield self._ledger_segments(summary)
        number = self._next_segment(ledger_id, -1)
        while number is not None:
            rows = self._rows(ledger_id, number)
            for file_id, length in rows:
                live[file_id] += length
            yield len(rows)
            number = self._next_segment(ledger_id, number)

    def _ledger_segments(self, summary: LedgerSummary) -> int:
        ledger_id = summary.ledger_id
        parents = {(level, parent_of(number)) for level, number, _ in self._tables.segments("ledger_id = ?", (ledger_id,))}
        count = self._top(summary)
        return count + sum(self._siblings(ledger_id, level, parent) for level, parent in parents if parent)

    def _live_bytes(self, live: dict[int, int], logs: dict[int, EntryLogRow]) -> None:
        for file_id in live.keys() | logs.keys():
            known = logs[file_id].live_bytes if file_id in logs else 0
            if live.get(file_id, 0) != known:
                raise self._damage(f"rows refer to {live.get(file_id, 0)} bytes of entry log {file_id}, not to {known}")

    def _next_ledger(self, ledger_id: int) -> int | None:
        found = [
            self._tables.least("ledger_id", table, "ledger_id > ?", (ledger_id,))
            for table in ("ledgers", "segments", "batches")
        ]
        return min((one for one in found if one is not None), default=None)

    def _next_segment(self, ledger_id: int, number: int) -> int | None:
        segment = self._tables.least("number", "segments", "ledger_id = ? AND level = 0 AND number > ?", (ledger_id, number))
        after = first_id(number + 1) - 1
        row = self._tables.least("first_entry_id", "batches", "ledger_id = ? AND first_entry_id > ?", (ledger_id, after))
        found = [segment, None if row is None else segment_of(row)]
        return min((one for one in found if one is not None), default=None)

    def _damage(self, problem: str) -> Exception:
        return self._tables.database.damage(problem)


def _tally(crcs: Iterable[int]) -> Tally:
    every = list(crcs)
    return NO_TALLY.plus(len(every), sum(every))
