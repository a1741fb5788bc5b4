"""What a conversion of messages' values gives: a column, and which rows do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import int64s


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """A value that does not fit its schema."""

    row: int
    """Counted from 0 in what was converted."""
    problem: str


@dataclass(frozen=True, slots=True)
class Converted:
    """Values as a column. Where the message has no value, and where it does not fit its schema, the row is null."""

    values: pa.Array
    problems: tuple[ValueProblem, ...] = ()
    """Ascending by row."""


def from_objects(objects: Sequence[Any], kind: pa.DataType) -> Converted:
    """Python objects as a column. Halves what Arrow refuses, until the rows that do not fit are alone."""
    try:
        return Converted(pa.array(objects, kind))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
        if len(objects) == 1:
            return Converted(pa.nulls(1, kind), (ValueProblem(0, f"its column cannot hold it ({problem})"),))
    middle = len(objects) // 2
    first, second = from_objects(objects[:middle], kind), from_objects(objects[middle:], kind)
    shifted = [ValueProblem(one.row + middle, one.problem) for one in second.problems]
    return Converted(pa.concat_arrays([first.values, second.values]), (*first.problems, *shifted))


def in_order(parts: Sequence[tuple[npt.NDArray[np.int64], Converted]]) -> Converted:
    """Conversions of some rows each, as one of all rows. Each part has the numbers of its rows."""
    places = np.concatenate([rows for rows, _ in parts])
    values = pa.concat_arrays([converted.values for _, converted in parts])
    found = [ValueProblem(int(rows[one.row]), one.problem) for rows, converted in parts for one in converted.problems]
    return Converted(values.take(int64s(np.argsort(places, kind="stable"))), _by_row(found))


def joined(*lists: Iterable[ValueProblem]) -> tuple[ValueProblem, ...]:
    """The problems of several conversions of the same rows; of a row that has several, the first list's."""
    found: dict[int, ValueProblem] = {}
    for one in (problem for problems in lists for problem in problems):
        found.setdefault(one.row, one)
    return _by_row(found.values())


def valid_rows(values: pa.Array) -> npt.NDArray[np.bool_]:
    """True for each row that is not null."""
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _by_row(problems: Iterable[ValueProblem]) -> tuple[ValueProblem, ...]:
    return tuple(sorted(problems, key=lambda one: one.row))
