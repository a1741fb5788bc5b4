"""In which partition of its table a row is: Iceberg's transforms, over whole columns.

Ref: the Iceberg specification, "Partition Transforms" and Appendix B, "32-bit Hash Requirements".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from bk_spark.errors import ConfigError
from bk_spark.log.stored.tier_settings import BUCKET, PartitionField

Key = tuple[int | None, ...]
"""A partition: a number for each field, None for nulls."""

_OF_TIMES = {"hours": 3600, "days": 86_400}
"""Seconds."""


def check_partitions(partition: Sequence[PartitionField], columns: pa.Schema) -> None:
    """Raises ConfigError for a column that the table lacks, or that cannot be partitioned so."""
    for one in partition:
        place = columns.get_field_index(one.column)
        if place < 0:
            raise ConfigError("a partition of a tier", str(one), f"the log has no column '{one.column}'")
        kind = columns.field(place).type
        is_time = of.is_timestamp(kind) or (of.is_date32(kind) and one.transform != "hours")
        is_hashed = (
            of.is_integer(kind) or of.is_date32(kind) or of.is_timestamp(kind) or of.is_string(kind) or of.is_binary(kind)
        )
        if not (is_hashed if one.transform == BUCKET else is_time):
            takes = "whole numbers, dates, timestamps, texts and binary" if one.transform == BUCKET else "dates and timestamps"
            raise ConfigError("a partition of a tier", str(one), f"column '{one.column}' is {kind}, and it takes {takes}")


def split(rows: pa.RecordBatch, partition: Sequence[PartitionField]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each partition, in their order."""
    keys = [_transformed(rows, one) for one in partition]
    codes = np.stack(
        [one.fill_null(0).to_numpy() for one in keys] + [one.is_null().to_numpy(zero_copy_only=False) for one in keys]
    )
    found, first, code = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    for number in range(found.shape[1]):
        key = tuple(one[int(first[number])].as_py() for one in keys)
        same = code.reshape(-1) == number
        yield key, rows if same.all() else rows.take(pa.array(np.flatnonzero(same)))


def key_of(rows: pa.RecordBatch, partition: Sequence[PartitionField]) -> Key:
    """The partition of rows that are all in one. Those of no rows are null."""
    found = {key for key, _ in split(rows, partition)} if rows.num_rows else {(None,) * len(partition)}
    assert len(found) == 1, f"rows of one file are in the partitions {found}"
    return found.pop()


def _transformed(rows: pa.RecordBatch, partition: PartitionField) -> pa.Int64Array:
    """Nulls where rows have no such column: an overwrite of the log may leave it out."""
    place = rows.schema.get_field_index(partition.column)
    if place < 0:
        return pa.nulls(rows.num_rows, pa.int64())
    column = rows.column(place)
    if partition.transform == BUCKET:
        return _buckets(column, partition.count)
    if partition.transform in _OF_TIMES and not of.is_date32(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        unit = _OF_TIMES[partition.transform] * 1_000_000
        return pa.array(micros.fill_null(0).to_numpy() // unit, mask=micros.is_null().to_numpy(zero_copy_only=False))
    if partition.transform == "days":
        return column.cast(pa.int32()).cast(pa.int64())
    years = pc.subtract(pc.year(column), 1970)
    if partition.transform == "years":
        return years
    return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))


def _buckets(column: pa.Array, count: int) -> pa.Int64Array:
    if of.is_string(column.type) or of.is_binary(column.type):
        hashed = _hashed_texts(column.cast(pa.binary()))
    else:
        whole = column.cast(pa.int32()) if of.is_date32(column.type) else column
        numbers = whole.cast(pa.int64()).fill_null(0).to_numpy()
        hashed = _murmur3(np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(-1, 8))
    buckets = (hashed & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return pa.array(buckets, mask=column.is_null().to_numpy(zero_copy_only=False))


def _hashed_texts(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Texts of one length at a time."""
    column = pa.concat_arrays([column])
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    lengths, hashed = np.diff(offsets), np.zeros(len(column), np.uint32)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        hashed[places] = _murmur3(data[offsets[places][:, None] + np.arange(length)])
    return hashed


def _murmur3(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """x86, 32 bits, seed 0, of each row."""
    count, length = data.shape
    with np.errstate(over="ignore"):
        hashed = np.zeros(count, np.uint32)
        whole = length // 4 * 4
        blocks = np.ascontiguousarray(data[:, :whole]).view("<u4") if whole else np.empty((count, 0), np.uint32)
        for place in range(blocks.shape[1]):
            hashed ^= _mixed(blocks[:, place])
            hashed = _rotated(hashed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        rest = np.zeros(count, np.uint32)
        for place in range(whole, length):
            rest |= data[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        hashed ^= _mixed(rest) if length % 4 else rest
        hashed ^= np.uint32(length)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
        return hashed ^ (hashed >> np.uint32(16))


def _mixed(block: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(value: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (value << np.uint32(by)) | (value >> np.uint32(32 - by))
