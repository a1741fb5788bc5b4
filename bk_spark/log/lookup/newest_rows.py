"""The newest rows of some keys of one lane, searched from the lane's last row to its first. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.log.lookup.asked_keys import AskedKeys
from bk_spark.log.lookup.known_entries import KnownEntry
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.gathering import as_one
from bk_spark.rows.keys.key_filter import Places, made_filter
from bk_spark.rows.keys.key_search import ABSENT, last_rows
from bk_spark.rows.statistics import MIN_ROWS, key_of
from bk_spark.rows.where.comparison import BoundComparison
from bk_spark.rows.where.filter import RowFilter
from bk_spark.rows.where.tree import And, Operator, Or, Tree

MOST_COMPARED = 1000
"""Keys that rows in files are compared with, as literals of an IN; with more keys all rows of a ledger are read."""

Found: TypeAlias = tuple[Places, pa.RecordBatch]
"""Places of keys, and the newest row of each."""


@dataclass(frozen=True, slots=True)
class LookupForm:
    """What to look at, and what to give."""

    log: str
    key: tuple[str, ...]
    """The key columns of the log."""
    stored: pa.Schema
    """All columns of the log."""
    given: pa.Schema
    """Those to give, in their order."""
    deleted_by: str | None = None
    """The column that is true in a row which says that its key is gone."""

    @property
    def looked_at(self) -> pa.Schema:
        names = dict.fromkeys([*self.key, *([self.deleted_by] if self.deleted_by else [])])
        return pa.schema([self.stored.field(name) for name in names])

    @property
    def read(self) -> pa.Schema:
        """The columns of both."""
        names = dict.fromkeys([*self.looked_at.names, *self.given.names])
        return pa.schema([self.stored.field(name) for name in names])


class FoundRows:
    """One search. Payloads are given to it from the last one to the first; one thread uses it."""

    def __init__(self, form: LookupForm, keys: AskedKeys, places: Places) -> None:
        self._form = form
        self._keys = keys
        self.wanted = places
        """Of the keys of which no row was met yet."""
        self.found: list[Found] = []
        """Without keys whose newest row says that they are gone."""
        self._key_decoder = RowDecoder(form.looked_at, checks_values=False)
        self._row_decoder = RowDecoder(form.given)

    @property
    def is_over(self) -> bool:
        return not len(self.wanted)

    def known_of(self, payload: pa.Buffer, what: str) -> KnownEntry:
        """What the payload's header says of its keys. Raises CorruptionError."""
        key, decoder = self._form.key, self._key_decoder
        rows, statistics = decoder.statistics(payload, what, key)
        return KnownEntry(rows, statistics, decoder.key_filter(payload, what, key))

    def candidates(self, known: KnownEntry) -> Places:
        """The wanted keys that an entry may hold."""
        return known.held(self._keys, self.wanted, self._form.key)

    def take(self, payload: pa.Buffer, what: str, candidates: Places) -> bytes | None:
        """Look at the rows of a payload. Returns a filter of its keys, where the header has none."""
        rows = self._key_decoder.decode(payload, what)
        columns = [rows.column(name) for name in self._form.key]
        last = last_rows(columns, self._keys.at(candidates))
        self._keep(rows, candidates, last, lambda chosen: self._row_decoder.decode(payload, what, lambda one: one.take(chosen)))
        if self._key_decoder.key_filter(payload, what, self._form.key) is not None and rows.num_rows >= MIN_ROWS:
            return None
        return made_filter(columns, rows.num_rows)

    def take_older(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Look at all older rows of a ledger, which come in their order, with the columns ``form.read``."""
        newest: Found | None = None
        for rows in batches:
            columns = [rows.column(name) for name in self._form.key]
            last = last_rows(columns, self._keys.at(self.wanted))
            hits = last != ABSENT
            if hits.any():
                newest = _newer(newest, (self.wanted[hits], rows.take(pa.array(last[hits]))))
        if newest is not None:
            places, rows = newest
            self._keep(rows, places, np.arange(len(places)), lambda chosen: rows.select(self._form.given.names).take(chosen))

    def asked_of_files(self) -> AskedRows:
        """What to read of files for ``take_older``."""
        few = len(self.wanted) <= MOST_COMPARED
        return AskedRows(self._form.read, self._condition() if few else None)

    def _keep(self, rows: pa.RecordBatch, places: Places, last: Places, give: Callable[[pa.Array], pa.RecordBatch]) -> None:
        """Of each key that has a last row among ``rows``, that row, unless it says that the key is gone."""
        hits = last != ABSENT
        if not hits.any():
            return
        chosen, hit = last[hits], places[hits]
        self.wanted = self.wanted[~np.isin(self.wanted, hit)]
        if self._form.deleted_by is not None:
            gone = pc.fill_null(rows.column(self._form.deleted_by).take(pa.array(chosen)), False)
            stays = ~gone.to_numpy(zero_copy_only=False)
            chosen, hit = chosen[stays], hit[stays]
        if len(hit):
            self.found.append((hit, give(pa.array(chosen))))

    def _condition(self) -> RowFilter:
        """Holds for all rows of the wanted keys, and may hold for others."""
        columns = self._keys.at(self.wanted)
        parts = [_is_one_of(name, column) for name, column in zip(self._form.key, columns, strict=True)]
        schema = pa.schema([self._form.stored.field(name) for name in self._form.key])
        return RowFilter(schema, parts[0] if len(parts) == 1 else And(tuple(parts)))


def _is_one_of(name: str, column: pa.Array) -> Tree[BoundComparison]:
    values = tuple(key_of(value) for value in column.unique() if value.is_valid)
    is_value = BoundComparison((name,), Operator.IN, values)
    is_null = BoundComparison((name,), Operator.IS_NULL)
    if not column.null_count:
        return is_value
    return Or((is_value, is_null)) if values else is_null


def _newer(old: Found | None, new: Found) -> Found:
    """Of keys that are in both, the new rows."""
    if old is None:
        return new
    stays = ~np.isin(old[0], new[0])
    if not stays.any():
        return new
    return np.concatenate([old[0][stays], new[0]]), as_one([old[1].filter(pa.array(stays)), new[1]])
