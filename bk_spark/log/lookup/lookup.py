"""Looks up the newest rows of keys: ``Log.get`` and ``Log.get_many``.

A key is hashed to its lane. The lane is walked from its newest row to its oldest (``lane_walk.py``), past entries of which is
known that they do not hold the key (``known_entries.py``).

Ref: DESIGN.md, "The newest row of a key".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bk_spark.calls.off_main_thread import off_main_thread
from bk_spark.errors import ConfigError
from bk_spark.log.lookup.asked_keys import AskedKeys, many_keys, one_key
from bk_spark.log.lookup.kept_payloads import KeptPayloads
from bk_spark.log.lookup.keyed_versions import KeyedVersion, KeyedVersions
from bk_spark.log.lookup.known_entries import KnownEntries
from bk_spark.log.lookup.lane_walk import KeptHandles, LaneWalk
from bk_spark.log.lookup.newest_rows import Found, FoundRows, LookupForm
from bk_spark.log.rows.read_rows import RowQuery
from bk_spark.log.rows.side_by_side import SideBySide
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.keys.key_filter import Places

_PLACE = pa.field("place", pa.int64())


@dataclass(frozen=True, slots=True)
class LookupQuery:
    """What to give of the rows, and of which version."""

    columns: Sequence[str] | None = None
    deleted_by: str | None = None
    version: int | None = None

    def form(self, log: str, version: KeyedVersion) -> LookupForm:
        """Raises ConfigError for columns that the log does not have."""
        given = RowQuery(self.columns).bound(log, version.schema).schema
        deleted = self.deleted_by
        if deleted is not None:
            place = version.schema.get_field_index(deleted) if isinstance(deleted, str) else -1
            if place < 0:
                raise ConfigError("deleted_by", deleted, f"log '{log}' has the columns {', '.join(version.schema.names)}")
            kind = version.schema.field(place).type
            if not pa.types.is_boolean(kind):
                remedy = f"log '{log}' has it as {kind}: it must be a column of booleans, true in rows of keys that are gone"
                raise ConfigError("deleted_by", deleted, remedy)
        return LookupForm(log, version.lanes.columns, version.schema, given, deleted)


class Lookups:
    """The look-ups of one log, and what they remember of it. Threads may share it."""

    def __init__(self, opener: LogLedgerOpener) -> None:
        self.log = opener.name
        self.versions = KeyedVersions(opener)
        self.handles = KeptHandles()
        self.kept = KeptPayloads()
        self._known: tuple[Lanes, KnownEntries] | None = None

    def get(self, key: Any, query: LookupQuery) -> pa.RecordBatch:
        """See ``Log.get``."""
        return one_row(self.started(key, query, is_one=True).outcome())

    def get_many(self, keys: Any, query: LookupQuery) -> pa.Table:
        """See ``Log.get_many``."""
        return self.started(keys, query, is_one=False).outcome()

    def started(self, keys: Any, query: LookupQuery, *, is_one: bool) -> Lookup:
        """A look-up of one key, or of several."""
        return Lookup(self, keys, query, is_one)

    def known(self, lanes: Lanes) -> KnownEntries:
        """Of the keys in the columns of these lanes. What is known of the keys in others, before an overwrite, is forgotten."""
        kept = self._known
        if kept is None or (kept[0].columns, kept[0].kinds) != (lanes.columns, lanes.kinds):
            kept = self._known = (lanes, KnownEntries())
        return kept[1]


class _GivenUpError(Exception):
    """Nobody waits for the look-up any more."""


@dataclass(eq=False)
class Lookup:
    """One look-up. ``run`` waits for metadata and bookies; ``give_up`` ends it at its next step."""

    lookups: Lookups
    keys: Any
    query: LookupQuery
    is_one: bool
    _is_given_up: threading.Event = field(default_factory=threading.Event, init=False)

    def outcome(self) -> pa.Table:
        """The result of ``run``. An interrupt ends the wait for it, and the look-up."""
        try:
            return off_main_thread(self.run)
        finally:
            self.give_up()

    def give_up(self) -> None:
        self._is_given_up.set()

    def run(self) -> pa.Table:
        """The rows that were found, in the order of the keys."""
        lookups = self.lookups
        version = lookups.versions.at(self.query.version)
        form = self.query.form(lookups.log, version)
        fields = [version.schema.field(name) for name in form.key]
        keys = (one_key if self.is_one else many_keys)(lookups.log, fields, self.keys)
        by_lane = list(keys.by_lane(version.lanes.count).items())
        if len(by_lane) == 1:
            found = list(self._of_lane(version, form, keys, *by_lane[0]))
        else:
            found = list(self._side_by_side(version, form, keys, by_lane))
        return _in_order(form.given, found)

    def _of_lane(self, version: KeyedVersion, form: LookupForm, keys: AskedKeys, lane: int, places: Places) -> Iterator[Found]:
        search = FoundRows(form, keys, places)
        known = self.lookups.known(version.lanes)
        LaneWalk(version, known, self.lookups.handles, self.lookups.kept, search, self._check_wanted).run(lane)
        yield from search.found

    def _side_by_side(
        self, version: KeyedVersion, form: LookupForm, keys: AskedKeys, lanes: list[tuple[int, Places]]
    ) -> Iterator[Found]:
        """Of several lanes, some at a time."""

        def placed(one: tuple[int, Places]) -> Iterator[pa.RecordBatch]:
            for places, rows in self._of_lane(version, form, keys, *one):
                schema = pa.schema([*form.given, _PLACE])
                yield pa.RecordBatch.from_arrays([*rows.columns, pa.array(places)], schema=schema)

        for batch in SideBySide(lanes, placed).batches():
            rows = pa.RecordBatch.from_arrays(batch.columns[:-1], schema=form.given)
            yield batch.column(batch.num_columns - 1).to_numpy(), rows

    def _check_wanted(self) -> None:
        if self._is_given_up.is_set():
            raise _GivenUpError


def one_row(found: pa.Table) -> pa.RecordBatch:
    """What the look-up of one key found."""
    return found.to_batches()[0] if found.num_rows else pa.RecordBatch.from_pylist([], schema=found.schema)


def _in_order(schema: pa.Schema, found: Sequence[Found]) -> pa.Table:
    rows = pa.Table.from_batches([batch for _, batch in found], schema=schema)
    if rows.num_rows < 2:
        return rows
    order = np.argsort(np.concatenate([places for places, _ in found]))
    try:
        return rows.take(pa.array(order))
    except pa.ArrowInvalid as problem:
        remedy = f"they are too large for one Arrow array ({problem}): look fewer keys up at once, or fewer columns"
        raise ConfigError("the number of rows found", rows.num_rows, remedy) from None
