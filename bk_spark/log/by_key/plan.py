"""Plans a compaction by key: which ledgers it replaces, and how its work is divided.

It takes the oldest ledgers of the log, as far as all their rows are old enough, and looks at nothing behind them: a row that
stays in full removes no older one. So who reads from a moment on that is younger than ``min_age_s`` misses no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.log.by_key.share import KeyShare, PlacedLedger
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.latest.asked import LATEST, AskedView
from bk_spark.log.rows.latest.shares import shares
from bk_spark.log.rows.latest.view import LatestRows, latest_rows
from bk_spark.log.rows.read_rows import stored_schema
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.by_key.settings import PLACE, KeyCompaction
from bk_spark.log.stored.by_key.spans import units
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, Totals


@dataclass(frozen=True, slots=True)
class KeyCompactionPlan:
    """What one compaction by key is going to do."""

    snapshot: LogSnapshot
    schema: pa.Schema
    """The columns of the log."""
    ledgers: tuple[CommittedLedger, ...]
    """What it replaces: the first ones of the log; empty where there is nothing to do."""
    shares: tuple[KeyShare, ...]
    """No two have a lane, and so a key, in common."""

    @property
    def total(self) -> Totals:
        return Totals.of(self.ledgers)

    def request(self, written: Sequence[CommittedLedger], entries: Sequence[EntryRows]) -> CommitRequest:
        """The commit of the new ledgers, one lane after the other, as one span in the place of the old ones."""
        ordered = sorted(written, key=lambda one: one.lane)
        span = tuple(replace(one, span=0 if place else self.total.span) for place, one in enumerate(ordered))
        remove = tuple(one.ledger_id for one in self.ledgers)
        return CommitRequest(CommitKind.COMPACT_KEYS, span, remove=remove, entries=tuple(entries))


def plan_by_key(logs: LogStore, snapshot: LogSnapshot, compaction: KeyCompaction) -> KeyCompactionPlan:
    """``snapshot`` is the newest version of a log. Raises ConfigError for a log without keys, or with a tier."""
    head = logs.names.head(snapshot.name, snapshot.uid)
    latest = check_by_key(snapshot, compaction)
    ages = _Ages(logs, head, snapshot.uid)
    old_end = ages.end_row_of(compaction.min_age_s)
    tombstones_end = min(old_end, ages.end_row_of(compaction.tombstones_kept_s))
    first_row = snapshot.end_row - Totals.of(snapshot.ledgers).span
    placed = list(_placed(snapshot, first_row, old_end))
    schema, ledgers = stored_schema(snapshot.name, snapshot), tuple(one.ledger for one in placed)
    is_compacted = all(one.ledger.span is not None for one in placed)
    if is_compacted and compaction.deleted_by is None:
        return KeyCompactionPlan(snapshot, schema, (), ())
    made = _shares(placed, latest, schema, tombstones_end - first_row)
    return KeyCompactionPlan(snapshot, schema, ledgers, tuple(made))


def check_by_key(snapshot: LogSnapshot, compaction: KeyCompaction) -> LatestRows:
    """The columns that the choice looks at. Raises ConfigError for a log that cannot be compacted so."""
    what = f"version {snapshot.version} of log '{snapshot.name}'"
    if snapshot.tier is not None:
        raise has_tier(snapshot.name)
    stored = stored_schema(snapshot.name, snapshot)
    if PLACE in [one.lower() for one in stored.names]:
        raise ConfigError(
            f"a column of log '{snapshot.name}'",
            PLACE,
            "compaction by key has that name for its own: overwrite the log without it",
        )
    asked = AskedView(LATEST, compaction.deleted_by, view_name="compaction of the log", deleted_by_name="deleted_by")
    return latest_rows(asked, what, stored, snapshot.lanes, None)


def has_tier(log: str) -> ConfigError:
    """The error for a log whose history is a table."""
    return ConfigError("the log to compact by key", log, "it has a tier, whose table keeps every row: read it with view=latest")


@dataclass(frozen=True, slots=True)
class _Ages:
    """How old rows are, by the clock of the metadata store."""

    logs: LogStore
    head: Head
    uid: str

    def end_row_of(self, age_s: int) -> int:
        """The number behind the rows that were committed at least so long ago. A record that is gone tells of none."""
        if age_s == 0:
            return self.head.end_row
        now_ms, head = StoreTimes(self.logs.store, self.logs.znodes).now_ms(), self.head
        while True:
            try:
                return self._end_row_before(now_ms - age_s * 1000, head)
            except (ConfigError, CorruptionError):
                seen, head = head, self.logs.names.head(head.name, self.uid)
                if head.oldest_record == seen.oldest_record:
                    raise  # otherwise a vacuum has removed what this was reading

    def _end_row_before(self, limit_ms: int, head: Head) -> int:
        times, first = StoreTimes(self.logs.store, self.logs.znodes), max(head.oldest_record, 1)
        version = times.last_before(self.logs.names.paths(self.uid), first, self.head.version, limit_ms)
        return 0 if version < first else self.logs.reader.version(head.name, self.uid, version).end_row


def _placed(snapshot: LogSnapshot, first_row: int, old_end: int) -> Iterator[PlacedLedger]:
    """The ledgers that are old enough, as far as each one before is, with the place of their first row."""
    start = first_row
    for unit in units(snapshot.ledgers):
        end = start + Totals.of(unit).span
        if end > old_end:
            return
        for one in unit:
            yield PlacedLedger(one, start - first_row)
        start = end


def _shares(placed: list[PlacedLedger], latest: LatestRows, schema: pa.Schema, tombstones_end: int) -> Iterator[KeyShare]:
    by_id = {one.ledger.ledger_id: one for one in placed if not one.ledger.is_empty}
    stretches = [Stretch(one.ledger.ledger_id, 0, one.ledger.last_entry_id, one.ledger.length) for one in by_id.values()]
    lanes = {ledger_id: one.ledger.lane for ledger_id, one in by_id.items()}
    for share in shares(stretches, lanes):
        yield KeyShare(tuple(by_id[one.ledger_id] for one in share), schema, latest, tombstones_end)
