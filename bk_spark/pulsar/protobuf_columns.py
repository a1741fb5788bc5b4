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
from typing import Final

import numpy as np
import numpy.typing as npt

PADDING: Final = 16
"""Bytes that must follow the messages in their buffer: a damaged one may be read this far beyond its end."""

MAX_FIELDS: Final = 10_000
"""Fields of one message, which bounds the steps: a producer may give a message thousands of properties, but not millions."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Data = npt.NDArray[np.uint8]


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

    ``varints``, ``slices`` and ``parts`` are the numbers of the fields to give: numbers, bytes, and repeated bytes.
    """
    return _Parser(data, starts, ends).run(varints, slices, parts)


class _Parser:
    """Rows that are not at their end yet, and what was found."""

    def __init__(self, data: Data, starts: Ints, ends: Ints) -> None:
        self._data = data
        self._ends = ends
        self._at = starts.copy()
        self._malformed = (starts < 0) | (starts > ends) | (ends > len(data) - PADDING)
        self._found_parts: dict[int, list[tuple[Ints, Ints, Ints]]] = {}

    def run(self, varints: Collection[int], slices: Collection[int], parts: Collection[int]) -> Parsed:
        count = len(self._at)
        numbers = {field: (np.zeros(count, np.uint64), np.zeros(count, np.bool_)) for field in varints}
        places = {field: (np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)) for field in slices}
        self._found_parts = {field: [] for field in parts}
        rows = np.flatnonzero(~self._malformed & (self._at < self._ends))
        for _ in range(MAX_FIELDS):
            if not len(rows):
                break
            rows, fields, kinds, values, begins = self._step(rows)
            for field in _distinct(fields):
                chosen = slice(None) if fields[0] == field and (fields == field).all() else fields == field
                if field in numbers:
                    self._keep_numbers(numbers[field], rows[chosen], kinds[chosen], values[chosen])
                elif field in places or field in self._found_parts:
                    self._keep_bytes(field, places.get(field), rows[chosen], kinds[chosen], begins[chosen])
            rows = rows[self._at[rows] < self._ends[rows]]
        self._malformed[rows] = True
        return Parsed(
            {field: Varints(*found) for field, found in numbers.items()},
            {field: Slices(*found) for field, found in places.items()},
            {field: self._joined(field) for field in parts},
            self._malformed,
        )

    def _step(self, rows: Ints) -> tuple[Ints, Ints, Ints, Numbers, Ints]:
        """One field of each row: the rows that are well-formed so far, its number and kind, its number or size, its begin."""
        ends = self._ends[rows]
        tags, at, good = varints_at(self._data, self._at[rows], ends)
        fields, kinds = (tags >> np.uint64(3)).view(np.int64), (tags & np.uint64(7)).view(np.int64)
        good &= (fields > 0) & (fields < 1 << 29)
        values, begins, fits = varints_at(self._data, at, ends)
        is_fixed = (kinds == _FIXED64) | (kinds == _FIXED32)
        if is_fixed.any():
            values = np.where(is_fixed, np.uint64(0), values)
            begins = np.where(is_fixed, at + np.where(kinds == _FIXED64, 8, 4), begins)
            fits |= is_fixed
        good &= fits & (is_fixed | (kinds == _VARINT) | (kinds == _BYTES))
        good &= (begins <= ends) & ((kinds != _BYTES) | (values <= np.maximum(ends - begins, 0).astype(np.uint64)))
        self._at[rows] = np.where(good, begins + np.where(kinds == _BYTES, values, np.uint64(0)).view(np.int64), ends)
        if not good.all():
            self._malformed[rows[~good]] = True
            return rows[good], fields[good], kinds[good], values[good], begins[good]
        return rows, fields, kinds, values, begins

    def _keep_numbers(self, found: tuple[Numbers, Flags], rows: Ints, kinds: Ints, values: Numbers) -> None:
        if not (kinds == _VARINT).all():  # of another kind: unknown to protobuf
            rows, values = rows[kinds == _VARINT], values[kinds == _VARINT]
        found[0][rows], found[1][rows] = values, True

    def _keep_bytes(self, field: int, found: tuple[Ints, Ints, Flags] | None, rows: Ints, kinds: Ints, begins: Ints) -> None:
        if not (kinds == _BYTES).all():
            rows, begins = rows[kinds == _BYTES], begins[kinds == _BYTES]
        if found is not None:
            found[0][rows], found[1][rows], found[2][rows] = begins, self._at[rows], True
        else:
            self._found_parts[field].append((rows, begins, self._at[rows].copy()))

    def _joined(self, field: int) -> Parts:
        found = self._found_parts[field]
        if not found:
            return Parts(*(np.zeros(0, np.int64) for _ in range(3)))
        rows, starts, ends = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return Parts(rows[order], starts[order], ends[order])


def varints_at(data: Data, at: Ints, ends: Ints) -> tuple[Numbers, Ints, Flags]:
    """The varints at these places, the places behind them, and which are whole. Of the others the results mean nothing."""
    first = data[at]
    good = at < ends
    if first.max(initial=0) < 0x80:
        return first.astype(np.uint64), at + 1, good
    values, at = (first & 0x7F).astype(np.uint64), at + 1
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


def _distinct(fields: Ints) -> list[int]:
    """The field numbers that there are. Rows of one kind of message mostly have the same one in one step."""
    if not len(fields):
        return []
    first = int(fields[0])
    return [first] if (fields == first).all() else np.unique(fields).tolist()
