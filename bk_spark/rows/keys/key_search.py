"""Finds keys among rows: exactly, in any number of columns, and null is a key like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.rows.lanes import canonical_floats

Numbers: TypeAlias = npt.NDArray[np.int64]

ABSENT = -1


def last_rows(columns: Sequence[pa.Array], keys: Sequence[pa.Array]) -> Numbers:
    """For each of ``keys``, which differ from each other, the last row that has it; ABSENT if none has.

    Rows and keys have the same columns, in the same order and of the same types.
    """
    of_rows, of_keys = np.zeros(len(columns[0]), np.int64), np.zeros(len(keys[0]), np.int64)
    for column, wanted in zip(columns, keys, strict=True):
        of_rows, of_keys = _numbered(of_rows, of_keys, column, wanted)
    hits = np.flatnonzero(of_rows != ABSENT)
    last = np.full(len(of_keys), ABSENT, np.int64)
    last[of_rows[hits]] = hits  # of several rows the last one stays
    return last[of_keys]


def first_places(keys: Sequence[pa.Array]) -> Numbers:
    """Where each key stands first, ascending."""
    numbers = np.zeros(len(keys[0]), np.int64)
    for column in keys:
        numbers = _numbered(numbers, numbers, column, column)[1]
    return np.sort(np.unique(numbers, return_index=True)[1]).astype(np.int64)


def _numbered(of_rows: Numbers, of_keys: Numbers, column: pa.Array, wanted: pa.Array) -> tuple[Numbers, Numbers]:
    """Numbers of rows and keys that are equal where the former ones, and the values of one more column, are."""
    if pa.types.is_floating(column.type):  # equal keys have equal bits, also where there is no number
        column, wanted = (canonical_floats(one).view(pa.int64()) for one in (column, wanted))
    encoded = wanted.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    in_rows = pc.fill_null(pc.index_in(column, value_set=values), ABSENT).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers, keys = np.unique(of_keys * len(values) + encoded.indices.to_numpy(), return_inverse=True)
    rows = np.where((of_rows == ABSENT) | (in_rows == ABSENT), ABSENT, of_rows * len(values) + in_rows)
    places = np.searchsorted(numbers, rows).clip(max=len(numbers) - 1)
    return np.where(numbers[places] == rows, places, ABSENT), keys.astype(np.int64)
