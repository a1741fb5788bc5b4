"""Parses many protobuf messages of one type in step: a cursor for each, one field of all of them at a time.

A message is a row, a field is an array with an element for each row. Where a field is repeated the last value counts, as
protobuf says; ``Parts`` has all of them. Unknown fields are passed over. A message that is malformed is marked, and the others
are parsed all the same.

    rows 0 and 1:  08 96 01 12 02 "hi"    08 07        1: varint, 2: bytes
    step 1: field 1 = [150, 7]            step 2: field 2 = ["hi", –]; row 1 is at its end

The cost of a step hardly depends on the number of rows, and their number of steps is the number of fields of the longest.

Ref: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PADDING: Final = 16
"""Bytes that must follow the messages in their buffer: a damaged one may be read this far beyond its end."""

MAX_FIELDS: Final = 10_000
"""Fields of one message, which bounds the steps: a producer may give a message thousands of properties, but not millions."""

_VARINT, _BYTES = 0, 2
_FIXED: Final = {1: 8, 5: 4}
"""Kind of field → its bytes, of those with a fixed size."""

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Data = npt.NDArray[np.uint8]
Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Varints:
    """A field of numbers: its value in each row, 0 where it is absent."""

    values: Numbers
    present: Flags

    @property
    def signed(self) -> Ints:
        """As int64 of two's complement."""
        return self.values.view(np.int64)

    @property
    def int32(self) -> npt.NDArray[np.int32]:
        """As an int32 field is read: its lower 32 bits."""
        return self.values.astype(np.uint32).view(np.int32)

    @property
    def is_true(self) -> Flags:
        return np.not_equal(self.values, 0)


@dataclass(frozen=True, slots=True)
class Slices:
    """A field of bytes: where its value is in the buffer, from ``starts`` to ``ends``, excluded; 0 and 0 where it is absent."""

    starts: Ints
    ends: Ints
    present: Flags


@dataclass(frozen=True, slots=True)
class Parts:
    """All values of a repeated field of bytes, by row and in their order: the row of each, and where it is."""

    rows: Ints
    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Parsed:
    """The fields that were asked for, by number, and which rows are malformed."""

    varints: dict[int, Varints]
    slices: dict[int, Slices]
    parts: dict[int, Parts]
    malformed: Flags


def parse(
    data: Data,
    starts: Ints,
    ends: Ints,
    varints: Collection[int] = (),
    slices: Collection[int] = (),
    parts: Collection[int] = (),
) -> Parsed:
    """The messages from ``starts`` to ``ends``, excluded, in ``data``, behind whose last message are PADDING bytes.

    ``varints``, ``slices`` and ``parts`` are the numbers of the fields to give: numbers, bytes, and repeated bytes. A table has
    a place for each tag up to the highest of them, so they are for fields of small numbers.
    """
    return _Parser(data, starts, ends).run(varints, slices, parts)


class _Parser:
    """Rows that are not at their end yet, where each is, and what was found."""

    def __init__(self, data: Data, starts: Ints, ends: Ints) -> None:
        self._data = data
        self._malformed = (starts < 0) | (starts > ends) | (ends > len(data) - PADDING)
        self._rows = np.flatnonzero(~self._malformed & (starts < ends))
        self._at, self._ends = starts[self._rows], ends[self._rows]
        self._numbers: dict[int, tuple[Numbers, Flags]] = {}
        self._places: dict[int, tuple[Ints, Ints, Flags]] = {}
        self._parts: dict[int, list[tuple[Ints, Ints, Ints]]] = {}
        self._kept_tags = np.zeros(0, np.int64)
        """For each tag: itself if it is to be kept, else its kind alone, as a tag of field 0."""

    def run(self, varints: Collection[int], slices: Collection[int], parts: Collection[int]) -> Parsed:
        count = len(self._malformed)
        self._numbers = {field: (np.zeros(count, np.uint64), np.zeros(count, np.bool_)) for field in varints}
        self._places = {
            field: (np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)) for field in slices
        }
        self._parts = {field: [] for field in parts}
        kept = [*(field << 3 | _VARINT for field in varints), *(field << 3 | _BYTES for field in (*slices, *parts))]
        self._kept_tags = np.arange((max(kept, default=0) | 7) + 1) & 7
        self._kept_tags[kept] = kept
        for _ in range(MAX_FIELDS):
            if not len(self._rows):
                break
            self._step()
        self._malformed[self._rows] = True
        return Parsed(
            {field: Varints(*found) for field, found in self._numbers.items()},
            {field: Slices(*found) for field, found in self._places.items()},
            {field: self._joined(field) for field in parts},
            self._malformed,
        )

    def _step(self) -> None:
        """One field of each row."""
        firsts = self._data[self._at]
        tag = int(firsts[0])
        if 8 <= tag < 0x80 and (firsts == tag).all():  # rows of one kind of message mostly have the same field here
            self._go_on(*self._field(tag >> 3, tag & 7, None, self._at + 1))
            return
        numbers, begins, good = varints_at(self._data, self._at, self._ends)
        good &= (numbers >= 8) & (numbers < 1 << 32)
        in_table = np.where(numbers < len(self._kept_tags), numbers, numbers & np.uint64(7))
        tags = self._kept_tags[in_table.view(np.int64)]
        behind = self._ends.copy()
        for one in np.flatnonzero(np.bincount(tags[good])).tolist():
            chosen = np.flatnonzero(good & (tags == one))
            behind[chosen], good[chosen] = self._field(one >> 3, one & 7, chosen, begins[chosen])
        self._go_on(behind, good)

    def _field(self, field: int, kind: int, chosen: Ints | None, at: Ints) -> tuple[Ints, Flags]:
        """Keep one field, whose values are at these places, of the chosen ones of the rows, or of all. Gives the places behind
        it, and in which rows it is well-formed."""
        ends = self._ends if chosen is None else self._ends[chosen]
        if kind in _FIXED:
            behind = at + _FIXED[kind]
            return behind, behind <= ends
        if kind not in (_VARINT, _BYTES):
            return ends, np.zeros(len(at), np.bool_)
        values, begins, good = varints_at(self._data, at, ends)
        if kind == _VARINT:
            if field in self._numbers:
                self._keep(self._numbers[field], chosen, good, values)
            return begins, good
        good &= values <= np.maximum(ends - begins, 0).view(np.uint64)
        behind = np.where(good, begins + values.view(np.int64), ends)
        if field in self._places:
            self._keep(self._places[field], chosen, good, begins, behind)
        elif field in self._parts:
            rows = self._rows if chosen is None else self._rows[chosen]
            self._parts[field].append((rows[good], begins[good], behind[good]))
        return behind, good

    def _keep(self, found: tuple[Column, ...], chosen: Ints | None, good: Flags, *values: Column) -> None:
        """Keep values of the chosen rows, or of all, where they are ``good``. The last column says that there is one."""
        if chosen is None and len(self._rows) == len(self._malformed) and good.all():
            for column, value in zip(found, (*values, good), strict=True):
                column[:] = value
            return
        rows = (self._rows if chosen is None else self._rows[chosen])[good]
        for column, value in zip(found, (*values, good), strict=True):
            column[rows] = value[good]

    def _go_on(self, at: Ints, good: Flags) -> None:
        """To the places behind a field, with the rows that have another one. The others are at their end, or malformed."""
        if not good.all():
            self._malformed[self._rows[~good]] = True
        left = good & (at < self._ends)
        if left.all():
            self._at = at
        else:
            self._rows, self._at, self._ends = self._rows[left], at[left], self._ends[left]

    def _joined(self, field: int) -> Parts:
        found = self._parts[field]
        if not found:
            return Parts(*(np.zeros(0, np.int64) for _ in range(3)))
        rows, starts, ends = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return Parts(rows[order], starts[order], ends[order])


def varints_at(data: Data, at: Ints, ends: Ints) -> tuple[Numbers, Ints, Flags]:
    """The varints at these places, the places behind them, and which are whole. Of the others the results mean nothing."""
    first = data[at]
    good = at < ends
    at = at + 1
    if first.max(initial=0) < 0x80:
        return first.astype(np.uint64), at, good
    values = (first & 0x7F).astype(np.uint64)
    rest = np.flatnonzero(first >= 0x80)
    for shift in range(7, 70, 7):
        places = at[rest]
        good[rest] &= places < ends[rest]
        more = data[np.minimum(places, len(data) - 1)]
        values[rest] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[rest] += 1
        rest = rest[more >= 0x80]
        if not len(rest):
            break
    good[rest] = False
    return values, at, good
