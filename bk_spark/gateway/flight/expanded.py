"""How many bytes columns take once the encodings of Arrow in them are plain columns, before any of these is made. Pure.

In dictionaries, runs and views many rows may share one value: a batch of 1 MiB may stand for terabytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

_Sizes: TypeAlias = float | npt.NDArray[np.float64]
"""Bytes of each row, or of every row: many may take no byte, and are not to take some here."""

_VALIDITY: Final = 1 / 8
"""Bytes of each value: whether it is null."""

_OFFSET: Final = 4 + _VALIDITY
"""Bytes of each list or text beside what is in it."""

_MOST_RUN_ROWS: Final = 1 << 24
"""Of runs inside of lists: they take no byte for a row, and are counted row by row here."""

_TOO_MANY: Final = 1e18


def expanded_bytes(batch: pa.RecordBatch) -> int:
    """About what the columns of a sound batch (``check_whole``) take as plain ones in which rows may share values."""
    return sum(int(_total(_sizes(column), len(column))) for column in batch.columns if _may_share(column.type))


@cache
def _may_share(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _may_share(kind.storage_type)
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind) or any(is_one(kind) for is_one in _VIEWS):
        return True
    return any(_may_share(kind.field(place).type) for place in range(kind.num_fields))


_VIEWS = (of.is_string_view, of.is_binary_view, of.is_list_view, of.is_large_list_view)
_BYTES = (of.is_string, of.is_binary, of.is_large_string, of.is_large_binary)


def _sizes(column: pa.Array) -> _Sizes:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _sizes(column.storage)
    if of.is_union(kind) or of.is_null(kind):  # no log has a union, and nulls take nothing
        return 0.0
    if of.is_dictionary(kind):
        picked = _picked(_sizes(column.dictionary), _numbers(column.indices))
        return np.where(_is_valid(column), picked, _VALIDITY).astype(np.float64)
    if of.is_run_end_encoded(kind):
        return _of_runs(column)
    if of.is_struct(kind):
        return sum((_sizes(column.field(place)) for place in range(kind.num_fields)), _VALIDITY)
    if of.is_map(kind):
        return _OFFSET + _of_lists(column, _sizes(column.keys) + _sizes(column.items))
    if kind.num_fields:
        return _OFFSET + _of_lists(column, _sizes(column.values))
    if of.is_string_view(kind) or of.is_binary_view(kind):
        return _of_views(column)
    if any(is_one(kind) for is_one in _BYTES):
        return _numbers(pc.binary_length(column)).astype(np.float64) + _OFFSET
    return float(kind.bit_width / 8 + _VALIDITY)


def _of_views(column: pa.Array) -> _Sizes:
    """A view has 16 bytes, of which the first four are its length. Behind a null there may be anything."""
    views = np.frombuffer(column.buffers()[1], np.int32)[: 4 * (column.offset + len(column)) : 4]
    return np.where(_is_valid(column), views[column.offset :], 0).astype(np.float64) + _OFFSET


def _of_runs(runs: pa.RunEndEncodedArray) -> _Sizes:
    if len(runs) > _MOST_RUN_ROWS:
        return _TOO_MANY
    rows = np.arange(runs.offset, runs.offset + len(runs))
    return _picked(_sizes(runs.values), np.searchsorted(runs.run_ends.to_numpy(), rows, side="right"))


def _of_lists(lists: Any, sizes: _Sizes) -> _Sizes:
    """Of each list, where ``sizes`` are those of the values of all."""
    kind, rows = lists.type, len(lists)
    if of.is_fixed_size_list(kind):
        lengths = np.full(rows, kind.list_size)
        starts = (lists.offset + np.arange(rows)) * kind.list_size
    else:
        starts = lists.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(starts) if of.is_map(kind) else _numbers(pc.list_value_length(lists))
        starts = starts[:rows]
    if isinstance(sizes, float):
        return lengths * sizes
    before = np.concatenate([[0.0], np.cumsum(sizes)])
    starts = np.where(lengths > 0, starts, 0)
    return np.asarray(before[starts + lengths] - before[starts])


def _picked(sizes: _Sizes, places: npt.NDArray[np.int64]) -> _Sizes:
    if isinstance(sizes, float):
        return sizes
    return sizes[places] if len(sizes) else 0.0  # without values all rows are null


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """0 for a null."""
    return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64))


def _is_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _total(sizes: _Sizes, rows: int) -> float:
    return sizes * rows if isinstance(sizes, float) else float(sizes.sum())
