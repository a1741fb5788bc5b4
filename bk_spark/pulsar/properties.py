"""The properties of messages: pairs of texts, as a column of maps."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import int64s
from bk_spark.pulsar.protobuf_columns import Parts, parse
from bk_spark.pulsar.rows import int32s
from bk_spark.pulsar.slices import cut_out, not_text

PROPERTIES_TYPE: Final = pa.map_(pa.string(), pa.string())
_KEY, _VALUE = 1, 2


def properties_of(data: bytes, numbers: npt.NDArray[np.uint8], parts: Parts, rows: int) -> tuple[pa.MapArray, list[int]]:
    """The map of each row, empty without properties, and the rows whose properties are damaged, which get an empty one.

    Of two properties with one key the last counts, at the place of the first.
    """
    if not len(parts.rows):
        none = pa.array([], pa.string())
        return pa.MapArray.from_arrays(int32s(np.zeros(rows + 1, np.int32)), none, none), []
    pairs = parse(numbers, parts.starts, parts.ends, slices=(_KEY, _VALUE))
    found = [pairs.slices[field] for field in (_KEY, _VALUE)]
    good = ~pairs.malformed & found[0].present & found[1].present
    buffer = pa.py_buffer(data)
    keys, values = (cut_out(buffer, one.starts, one.ends, one.present) for one in found)
    good[[*not_text(keys), *not_text(values)]] = False
    wrong = np.unique(parts.rows[~good])
    kept = ~np.isin(parts.rows, wrong) if len(wrong) else np.ones(len(parts.rows), np.bool_)
    owners = parts.rows
    order = np.flatnonzero(kept)
    if len(order) and np.any(owners[1:] == owners[:-1]):
        order = _last_of_each_key(owners, keys, order)
    if len(order) < len(owners) or np.any(order[1:] < order[:-1]):
        keys, values, owners = keys.take(int64s(order)), values.take(int64s(order)), owners[order]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=rows), out=offsets[1:])
    maps = pa.MapArray.from_arrays(int32s(offsets), keys.cast(pa.string()), values.cast(pa.string()))
    return maps, wrong.tolist()


def _last_of_each_key(
    owners: npt.NDArray[np.int64], keys: pa.BinaryArray, order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """``order``, where of the pairs of one row with one key only the last is kept, at the place of the first."""
    numbers = np.asarray(keys.take(int64s(order)).dictionary_encode().indices).astype(np.int64)
    pairs = owners[order] * (int(numbers.max()) + 1) + numbers
    distinct, firsts = np.unique(pairs, return_index=True)
    if len(distinct) == len(pairs):
        return order
    _, lasts = np.unique(pairs[::-1], return_index=True)
    last = len(pairs) - 1 - lasts
    chosen: npt.NDArray[np.int64] = order[last[np.argsort(firsts, kind="stable")]]
    return chosen
