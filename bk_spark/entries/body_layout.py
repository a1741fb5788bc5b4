"""How the body of a batch is laid out, as pyarrow does it: to write one, and to tell whether bytes are one without decoding.

Bodies of one schema that pyarrow made differ, in front of their columns, only in some numbers: rows, and places and sizes of
buffers. So what stands in front is that of a sample with other numbers in it. Who writes a body puts each column into its place
(body_draft.py), without the copies that pyarrow makes. Bookies look at every add before they store it, and do not need its
entries; a body that is laid out in another way is not refused here: the caller decodes it.

Ref: docs/formats.md, "A batch of entries"; Apache Arrow, "Encapsulated message format".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from bk_spark.config import KIB, MAX_BATCH_ENTRIES
from bk_spark.entries.arrow_message import metadata_end, number_places

ALIGNMENT = 8
"""Buffers, and the metadata, have a multiple of so many bytes."""

_OFFSET_BYTES = 4
_NUMBER_BYTES = 8
_OFFSET = struct.Struct("<i")

_UNIFORM_BYTES = 16 * KIB
"""Offsets of values of one size are compared with known ones up to this size. Of larger values a batch has few."""

_KEPT = 1024
"""Beginnings of bodies that were looked at: entries of one size travel in batches of one to some hundred, and batches of one
size begin alike."""


@dataclass(frozen=True, slots=True)
class BodyPlaces:
    """Where in a body what is."""

    metadata: bytes
    """It begins the body."""
    buffers: tuple[int, ...]
    """Where the values of each column but the last begin, then the offsets of the last one, then its data."""
    size: int
    """Of the whole body. What lies between the buffers and behind the last one is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class BodyLayout:
    """The beginning of every body of one schema, whose last column is binary and whose other columns have a fixed width."""

    sample: bytes
    """The metadata of some body."""
    form: struct.Struct
    """Takes the metadata apart into numbers and what lies between them."""
    constants: tuple[object, ...]
    take_constants: itemgetter[tuple[object, ...]]
    take_numbers: itemgetter[tuple[int, ...]]
    numbers: tuple[int, ...]
    """The parts that are numbers: rows, bytes of the body, rows and nulls of each column, place and size of each buffer."""
    value_bytes: tuple[int | None, ...]
    """For each buffer the bytes of a value there, 0 where they differ; None for a bitmap of nulls, which is empty."""

    @lru_cache(_KEPT)  # noqa: B019 - as that of _offsets
    def places(self, rows: int, data_bytes: int) -> BodyPlaces:
        """For a body of so many rows, whose last column has so many bytes of data."""
        sizes = [0 if value_bytes is None else rows * value_bytes for value_bytes in self.value_bytes]
        sizes[-2:] = [(rows + 1) * _OFFSET_BYTES, data_bytes]
        ends = list(accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
        begins = [0, *ends[:-1]]
        buffers = chain.from_iterable(zip(begins, sizes, strict=True))
        columns = sum(value_bytes is None for value_bytes in self.value_bytes)
        parts = list(self.form.unpack(self.sample))
        for part, number in zip(self.numbers, [rows, ends[-1], *[rows, 0] * columns, *buffers], strict=True):
            parts[part] = number
        metadata = self.form.pack(*parts)
        kept = (len(metadata) + at for at, value in zip(begins, self.value_bytes, strict=True) if value is not None)
        return BodyPlaces(metadata, tuple(kept), len(metadata) + ends[-1])

    def is_body(self, body: bytes | memoryview, rows: int) -> bool:
        """True if the body certainly holds ``rows`` rows that Arrow can read, without nulls. False says nothing."""
        found = self._offsets(bytes(body[: self.form.size]), rows, len(body) - self.form.size)
        return found is not None and _are_offsets(body, self.form.size + found[0], rows, found[1])

    @lru_cache(_KEPT)  # noqa: B019 - there are as many layouts as schemas, and they live as long as the process
    def _offsets(self, metadata: bytes, rows: int, body_bytes: int) -> tuple[int, int] | None:
        """Where the offsets of the last column are, and the bytes that they point to. None for metadata of another form."""
        if len(metadata) < self.form.size:
            return None
        parts = self.form.unpack(metadata)
        found_rows, found_bytes, *numbers = self.take_numbers(parts)
        buffers = numbers[-2 * len(self.value_bytes) :]
        nodes = numbers[: -len(buffers)]
        is_alike = self.take_constants(parts) == self.constants and (found_rows, found_bytes) == (rows, body_bytes)
        if not is_alike or nodes != [rows, 0] * (len(nodes) // 2) or not self._are_buffers(buffers, rows, body_bytes):
            return None
        return buffers[-4], buffers[-1]

    def _are_buffers(self, buffers: list[int], rows: int, body_bytes: int) -> bool:
        """``buffers``: place and size of each."""
        end = 0
        for value_bytes, at, size in zip(self.value_bytes, buffers[::2], buffers[1::2], strict=True):
            if at < end or at % ALIGNMENT or (size if value_bytes is None else size < rows * value_bytes):
                return False
            end = at + size
        return end <= body_bytes and buffers[-3] >= (rows + 1) * _OFFSET_BYTES


def _are_offsets(body: bytes | memoryview, at: int, rows: int, data_bytes: int) -> bool:
    """Whether the offsets of ``rows`` values, at this place, ascend within so many bytes."""
    packed = bytes(body[at : at + (rows + 1) * _OFFSET_BYTES])
    size: int = _OFFSET.unpack_from(packed, _OFFSET_BYTES)[0]
    if 0 < size <= _UNIFORM_BYTES and packed == _uniform(size)[: len(packed)]:
        return rows * size <= data_bytes
    every = np.frombuffer(packed, dtype="<i4")
    return bool(every[0] >= 0 and every[-1] <= data_bytes and (every[1:] >= every[:-1]).all())


@lru_cache(16)
def _uniform(size: int) -> bytes:
    """The offsets of as many values of one size as a batch may have."""
    return np.arange(0, (MAX_BATCH_ENTRIES + 1) * size, size, dtype="<i4").tobytes()


def layout_of(schema: pa.Schema) -> BodyLayout:
    sample = pa.RecordBatch.from_arrays([_sample(kind) for kind in schema.types], schema=schema).serialize().to_pybytes()
    places = number_places(memoryview(sample), "a sample")
    ascending = sorted(places)
    gaps = [place - at for at, place in pairwise([-_NUMBER_BYTES, *ascending, metadata_end(memoryview(sample), "a sample")])]
    form = struct.Struct("<" + "q".join(f"{gap - _NUMBER_BYTES}s" for gap in gaps))  # parts 0, 2, 4 … are constants
    take_constants: itemgetter[tuple[object, ...]] = itemgetter(*range(0, 2 * len(gaps), 2))
    numbers = tuple(2 * ascending.index(place) + 1 for place in places)
    fixed = (value_bytes for kind in schema.types[:-1] for value_bytes in (None, kind.bit_width // 8))
    value_bytes = (*fixed, None, _OFFSET_BYTES, 0)
    constants = take_constants(form.unpack_from(sample))
    return BodyLayout(sample[: form.size], form, constants, take_constants, itemgetter(*numbers), numbers, value_bytes)


def _sample(kind: pa.DataType) -> pa.Array:
    """One value without the help of ``pa.array``, which would import pandas."""
    if kind == pa.binary():
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(2 * _OFFSET_BYTES)), pa.py_buffer(b"")])
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(kind.bit_width // 8))])
