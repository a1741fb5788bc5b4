"""One transaction of the index: stored batches come, move and go; segments, summaries, buckets and live bytes follow them.

Stored batches are written at once, all else at the end of the transaction, so that a ledger's segments and summary are read and
written once however often the ledger changes. Memory changes only in ``take_effect``, which is called after the commit.

Ref: docs/rules.md, storage rules 3, 5, 10 and 14.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.segments import IndexMemory, bucket_of, parent_of, segment_of
from bk_spark.bookie.index.sqlite_database import Columns
from bk_spark.bookie.index.sqlite_tables import (
    BATCHES,
    BUCKETS,
    ENTRY_LOGS,
    LEDGERS,
    SEGMENTS,
    Tables,
    columns_of_batch,
    columns_of_entry_log,
    columns_of_summary,
)
from bk_spark.bookie.index.values import CHOSEN_ID, DELETED, FENCED, NO_TALLY, IndexState, LedgerSummary, StoredBatch, Tally
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import InternalError

_Delta = tuple[int, int]
"""The changes of a count and of a sum of CRCs."""


@dataclass(slots=True)
class _LedgerEdit:
    before: LedgerSummary | None
    after: LedgerSummary | None
    """The changes of ``segments`` are not in it yet. None if the ledger is forgotten."""
    segments: dict[int, _Delta] = field(default_factory=dict)
    """By number, of level 0."""


class Transaction:
    def __init__(self, tables: Tables, memory: IndexMemory) -> None:
        self.mark = memory.state.mark
        self.limbo = memory.state.limbo
        self._next_entry_log_id = memory.state.mark.next_entry_log_id
        """Above every id that was ever named: none is used again."""
        self._tables = tables
        self._memory = memory
        self._edits: dict[int, _LedgerEdit] = {}
        self._live: defaultdict[int, int] = defaultdict(int)
        self._logs: dict[int, KnownEntryLog | None] = {}
        self._buckets: dict[int, Tally] = {}
        self._state: IndexState | None = None

    def apply(self, change: LedgerChange) -> None:
        """Delete what ``change`` deletes, then add its stored batches and what it says of the ledger."""
        edit = self._edit(change.ledger_id)
        new = LedgerSummary(change.ledger_id, 0, NO_TALLY, 0, NO_ENTRY, NO_ENTRY, change.master_key_hash)
        summary = edit.after or new
        if change.deleted_at > summary.deleted_at:
            self._delete_below(edit, summary.ledger_id, change.deleted_at)
            flags = summary.flags | FENCED | DELETED
            summary = replace(summary, flags=flags, deleted_at=change.deleted_at, deleted_ms=change.deleted_ms)
            self._tables.forget_proven(change.ledger_id)
        if change.proven is not None:
            self._tables.put_proven(change.ledger_id, change.proven)
        added = [stored for stored in change.batches if stored.sequence > summary.deleted_at]
        self._insert(edit, added)
        edit.after = _grown(summary, change, added)

    def move(self, stored: StoredBatch, place: EntryLocation) -> None:
        """Let a stored batch point to ``place``, if it is still what it was."""
        old, new = columns_of_batch(stored), columns_of_batch(replace(stored, location=place))
        if self._tables.move_batch(old, new):
            edit = self._edit(stored.ledger_id)
            self._count(edit, [old], -1)
            self._count(edit, [new], 1)

    def remove(self, stored: StoredBatch) -> None:
        """Delete a stored batch, if it is still what it was."""
        columns = columns_of_batch(stored)
        if self._tables.delete_batch(columns):
            self._count(self._edit(stored.ledger_id), [columns], -1)

    def purge(self, ledger_id: int) -> None:
        """Forget a ledger if it is a tombstone, which has no stored batches."""
        edit = self._edit(ledger_id)
        if edit.after is not None and edit.after.is_deleted:
            self._tables.delete(LEDGERS, [(ledger_id,)])
            edit.after = None

    def add_files(self, files: Iterable[LogFile]) -> None:
        """Store the directories, sizes and states of entry logs. Once sealed they stay sealed."""
        for file in files:
            self._next_entry_log_id = max(self._next_entry_log_id, file.file_id + 1)
            known = self._log(file.file_id)
            before = LogState.OPEN if known is None else known.state
            state = max(before, LogState.SEALED if file.is_sealed else LogState.OPEN)
            live = 0 if known is None else known.live_bytes
            self._logs[file.file_id] = KnownEntryLog(file.file_id, file.directory, state, file.size_bytes, live)

    def bury(self, file_id: int) -> bool:
        """Mark a sealed entry log dead. False if a batch refers to it or it is not sealed."""
        self._settle_live_bytes()
        log = self._log(file_id)
        if log is None or log.state is LogState.OPEN or log.live_bytes:
            return False
        self._logs[file_id] = replace(log, state=LogState.DEAD)
        return True

    def forget_log(self, file_id: int) -> None:
        """Raises InternalError unless the log is dead or unknown."""
        self._next_entry_log_id = max(self._next_entry_log_id, file_id + 1)
        log = self._log(file_id)
        if log is not None and log.state is not LogState.DEAD:
            raise InternalError(0, f"entry log {file_id} is {log.state.name} and was to be forgotten")
        self._logs[file_id] = None

    def write(self) -> None:
        """Write all that follows from the stored batches. The commit comes next."""
        self._settle_live_bytes()
        for ledger_id, edit in self._edits.items():
            self._write_ledger(ledger_id, edit)
        buckets = (BUCKETS.with_crc((bucket, *tally)) for bucket, tally in self._buckets.items())
        self._tables.insert(BUCKETS, buckets, "REPLACE")
        logs = (columns_of_entry_log(log) for log in self._logs.values() if log is not None)
        self._tables.insert(ENTRY_LOGS, logs, "REPLACE")
        self._tables.delete(ENTRY_LOGS, ((file_id,) for file_id, log in self._logs.items() if log is None))
        self._state = self._next_state()
        self._tables.put_state(self._state)

    def take_effect(self) -> None:
        """Change what is kept in memory, after the commit."""
        assert self._state is not None
        assert not self._live, "every change of live bytes is written"
        memory = self._memory
        memory.state = self._state
        for bucket, tally in self._buckets.items():
            memory.buckets.put(bucket, tally)
        for file_id, log in self._logs.items():
            if log is None:
                memory.entry_logs.pop(file_id, None)
            else:
                memory.entry_logs[file_id] = log

    def _edit(self, ledger_id: int) -> _LedgerEdit:
        edit = self._edits.get(ledger_id)
        if edit is None:
            summary = self._tables.summary(ledger_id)
            edit = self._edits[ledger_id] = _LedgerEdit(summary, summary)
        return edit

    def _insert(self, edit: _LedgerEdit, added: Sequence[StoredBatch]) -> None:
        packed = [columns_of_batch(stored) for stored in added]
        self._tables.insert(BATCHES, packed)
        self._count(edit, packed, 1)

    def _delete_below(self, edit: _LedgerEdit, ledger_id: int, sequence: int) -> None:
        """Raises CorruptionError unless all batches of the ledger are there: a hidden one would bring the ledger back."""
        expected = (edit.after.batch_count if edit.after is not None else 0) + sum(count for count, _ in edit.segments.values())
        found = self._tables.batch_count(ledger_id)
        if found != expected:
            problem = f"{found} batches of ledger {ledger_id} were to be deleted, {expected} were committed"
            raise self._tables.database.damage(problem)
        self._count(edit, self._tables.select(BATCHES, "ledger_id = ? AND sequence < ?", (ledger_id, sequence)), -1)
        self._tables.delete_batches_below(ledger_id, sequence)

    def _count(self, edit: _LedgerEdit, rows: Iterable[Columns], sign: int) -> None:
        """Stored batches were added (``sign`` 1) or deleted (-1): change their segments and their logs' live bytes."""
        segments, live = edit.segments, self._live
        for columns in rows:
            number = segment_of(columns[1])
            count, crc_sum = segments.get(number, (0, 0))
            segments[number] = (count + sign, crc_sum + sign * columns[9])
            live[columns[6]] += sign * columns[8]

    def _write_ledger(self, ledger_id: int, edit: _LedgerEdit) -> None:
        summary = edit.after and self._tallied(edit.after, edit.segments)
        if summary == edit.before:
            return
        if summary is not None and edit.before is not None:
            _check_kept(edit.before, summary)
        before, after = (columns_of_summary(one) if one else None for one in (edit.before, summary))
        if after is not None:
            self._tables.put_summary(after, is_new=before is None)
        bucket = bucket_of(ledger_id)
        tally = self._buckets.get(bucket) or self._memory.buckets.tally(bucket)
        self._buckets[bucket] = tally.plus(*_change(before, after))

    def _tallied(self, summary: LedgerSummary, changes: dict[int, _Delta]) -> LedgerSummary:
        """``summary`` with the batches that were added and deleted. Writes the segments. A tombstone has no batches."""
        batch_count = summary.batch_count + sum(count for count, _ in changes.values())
        segments = summary.segments.plus(*self._write_segments(summary.ledger_id, changes))
        if batch_count == 0:
            return replace(summary, batch_count=0, segments=segments, max_span=0, highest_entry_id=NO_ENTRY)
        return replace(summary, batch_count=batch_count, segments=segments, flags=summary.flags & ~DELETED)

    def _write_segments(self, ledger_id: int, changes: dict[int, _Delta]) -> _Delta:
        """Write the segments, level by level upwards. Returns the change of the summary's tally."""
        top = NO_TALLY
        level = 0
        while changes:
            above: dict[int, _Delta] = {}
            for number, delta in changes.items():
                count, crc_sum = above.get(parent_of(number), (0, 0))
                more, added = self._write_segment(ledger_id, level, number, delta)
                above[parent_of(number)] = (count + more, crc_sum + added)
            top = top.plus(*above.pop(0, (0, 0)))
            changes, level = above, level + 1
        return top

    def _write_segment(self, ledger_id: int, level: int, number: int, delta: _Delta) -> _Delta:
        """Returns the change of the tally one level up."""
        key = (ledger_id, level, number)
        before = self._tables.find(SEGMENTS, key)
        tally = (Tally(*before[3:5]) if before else NO_TALLY).plus(*delta)
        after = SEGMENTS.with_crc((*key, *tally)) if tally.size else None
        if after is None:
            self._tables.delete(SEGMENTS, [key])
        else:
            self._tables.insert(SEGMENTS, [after], "REPLACE")
        return _change(before, after)

    def _log(self, file_id: int) -> KnownEntryLog | None:
        return self._logs[file_id] if file_id in self._logs else self._memory.entry_logs.get(file_id)

    def _settle_live_bytes(self) -> None:
        """Raises InternalError for stored batches in an unknown or dead log, whose file would be deleted."""
        for file_id, change in self._live.items():
            log = self._log(file_id)
            if log is None or (log.state is LogState.DEAD and change > 0):
                problem = f"stored batches were to refer to entry log {file_id}, which the index does not know or calls dead"
                raise InternalError(0, problem)
            self._logs[file_id] = replace(log, live_bytes=log.live_bytes + change)
        self._live.clear()

    def _next_state(self) -> IndexState:
        state, memory = self._memory.state, self._memory
        buckets, logs = state.buckets, state.entry_logs
        for bucket, tally in self._buckets.items():
            known = memory.buckets.tally(bucket)
            both = [BUCKETS.with_crc((bucket, *one)) if one.size else None for one in (known, tally)]
            buckets = buckets.plus(*_change(*both))
        for file_id, log in self._logs.items():
            both = [columns_of_entry_log(one) if one else None for one in (memory.entry_logs.get(file_id), log)]
            logs = logs.plus(*_change(*both))
        generation = state.generation + 1
        mark = replace(self.mark, next_entry_log_id=max(self.mark.next_entry_log_id, self._next_entry_log_id))
        return replace(state, generation=generation, buckets=buckets, entry_logs=logs, mark=mark, limbo=self.limbo)


def _change(before: Columns | None, after: Columns | None) -> _Delta:
    """The change of a tally in which ``after`` replaces ``before``."""
    return (after is not None) - (before is not None), (after[-1] if after else 0) - (before[-1] if before else 0)


def _check_kept(before: LedgerSummary, after: LedgerSummary) -> None:
    """What a bookie has once promised for a ledger stays, as long as it knows the ledger."""
    assert after.master_key_hash == before.master_key_hash
    assert after.is_fenced or not before.is_fenced, "a fence is never lifted"
    assert after.last_add_confirmed >= before.last_add_confirmed
    assert after.deleted_at >= before.deleted_at


def _grown(summary: LedgerSummary, change: LedgerChange, added: Sequence[StoredBatch]) -> LedgerSummary:
    """``summary`` with what ``change`` and its ``added`` ones say of the ledger. The LAC and the fence never go back."""
    return replace(
        summary,
        max_span=max([summary.max_span, *(stored.span for stored in added)]),
        highest_entry_id=max([summary.highest_entry_id, *(stored.last_entry_id for stored in added)]),
        last_add_confirmed=max(summary.last_add_confirmed, change.last_add_confirmed),
        flags=summary.flags | (FENCED if change.is_fenced else 0) | (CHOSEN_ID if change.has_chosen_id else 0),
    )
