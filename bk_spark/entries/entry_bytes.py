"""Entries as Apache BookKeeper's clients send and its bookies store them, made from batches and back.

An entry is a header of 32 bytes, its digest and its payload, one behind the other. In a batch these are columns, so that either
form is made from the other for all entries of a batch at once.

Ref: Apache BookKeeper's DigestManager; docs/formats.md, "Digests".
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import DigestType
from bk_spark.entries.batch import NO_ENTRY, EntryBatch, binaries
from bk_spark.entries.digest import DIGEST_BYTES, Digester, payload_pieces, payload_sizes, payloads_in_a_row
from bk_spark.errors import CorruptionError

Places: TypeAlias = npt.NDArray[np.int64]
"""A row for each entry: where it begins, and the place behind its last byte."""

HEADER_BYTES = 32

Offsets: TypeAlias = npt.NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

_HEADER = [("ledger_id", ">i8"), ("entry_id", ">i8"), ("last_add_confirmed", ">i8"), ("length", ">i8")]


def framed(batch: EntryBatch, digest_type: DigestType, before: bytes) -> bytes:
    """All entries, each as a frame: its size without these four bytes, ``before``, then the entry."""
    sizes = payload_sizes(batch.payloads)
    heads = np.empty(len(batch), dtype=_framed_head(len(before), DIGEST_BYTES[digest_type]))
    heads["size"] = heads.dtype.itemsize - 4 + sizes
    heads["before"] = np.void(before)
    _fill(heads, batch, digest_type)
    return _interleaved(heads, batch.payloads, sizes)


def interleaved(batch: EntryBatch, digest_type: DigestType) -> pa.BinaryArray:
    """Each entry in one piece."""
    sizes = payload_sizes(batch.payloads)
    heads = np.empty(len(batch), dtype=_head(DIGEST_BYTES[digest_type]))
    _fill(heads, batch, digest_type)
    data = _interleaved(heads, batch.payloads, sizes)
    ends = np.cumsum(np.concatenate([[0], sizes + heads.dtype.itemsize]), dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _fill(heads: npt.NDArray[np.void], batch: EntryBatch, digest_type: DigestType) -> None:
    width = DIGEST_BYTES[digest_type]
    heads["ledger_id"] = batch.ledger_id
    heads["entry_id"] = batch.entry_ids
    heads["last_add_confirmed"] = batch.last_add_confirmed
    heads["length"] = batch.lengths
    if width:
        heads["digest"] = _column(batch.digests, width)


def _interleaved(heads: npt.NDArray[np.void], payloads: pa.BinaryArray, sizes: Offsets) -> bytes:
    """Each head followed by its payload."""
    count, width = len(heads), heads.dtype.itemsize
    if (sizes == sizes[0]).all():
        out = np.empty((count, width + int(sizes[0])), dtype=np.uint8)
        out[:, :width] = heads.view(np.uint8).reshape(count, width)
        out[:, width:] = np.frombuffer(payloads_in_a_row(payloads), dtype=np.uint8).reshape(count, -1)
        return out.tobytes()
    return b"".join(chain.from_iterable(zip(heads.view(f"V{width}").tolist(), payload_pieces(payloads), strict=True)))


@cache
def _head(digest_bytes: int) -> np.dtype[np.void]:
    return np.dtype([*_HEADER, *([("digest", f"V{digest_bytes}")] if digest_bytes else [])])


@cache
def _framed_head(before_bytes: int, digest_bytes: int) -> np.dtype[np.void]:
    digest = [("digest", f"V{digest_bytes}")] if digest_bytes else []
    return np.dtype([("size", ">u4"), ("before", f"V{before_bytes}"), *_HEADER, *digest])


def _column(values: pa.FixedSizeBinaryArray, width: int) -> npt.NDArray[np.void]:
    every = np.frombuffer(values.buffers()[1], dtype=f"V{width}", count=values.offset + len(values))
    return every[values.offset :]


def entries_of(ledger_id: int, digest_type: DigestType, data: bytes | memoryview, places: Places) -> EntryBatch:
    """The entries at these places of ``data``, at least one.

    Raises CorruptionError for one that is too short, or of another ledger.
    """
    width = DIGEST_BYTES[digest_type]
    starts, ends = places.T
    begins = starts + HEADER_BYTES + width
    if (begins > ends).any():
        raise CorruptionError(f"an entry of ledger {ledger_id}", "it is shorter than its header and its digest")
    headers = gathered(data, starts, np.dtype(_HEADER))
    if (headers["ledger_id"] != ledger_id).any():
        raise CorruptionError(f"an entry of ledger {ledger_id}", "it says that it is of another ledger")
    digests = gathered(data, starts + HEADER_BYTES, np.dtype(f"V{width}")).tobytes() if width else b""
    return EntryBatch(
        ledger_id,
        headers["entry_id"].astype(np.int64),
        headers["last_add_confirmed"].astype(np.int64),
        headers["length"].astype(np.int64),
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(starts), [None, pa.py_buffer(digests)]),
        _payloads(data, begins, ends),
    )


def _payloads(data: bytes | memoryview, begins: Offsets, ends: Offsets) -> pa.BinaryArray:
    size, step = int(ends[0] - begins[0]), int(begins[1] - begins[0]) if len(begins) > 1 else 0
    if not size or not step or (np.diff(begins) != step).any() or (ends - begins != size).any():
        view = memoryview(data)
        return binaries([view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
    rows = np.ndarray((len(begins), size), np.uint8, data, offset=int(begins[0]), strides=(step, 1))
    bounds = np.arange(0, size * (len(begins) + 1), size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(begins), [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def last_add_confirmed_of(ledger_id: int, digester: Digester, entry: bytes) -> int:
    """What an entry says was confirmed when it was sent; NO_ENTRY if its digest is wrong. Raises CorruptionError."""
    found = entries_of(ledger_id, digester.digest_type, entry, np.array([[0, len(entry)]]))
    return int(found.last_add_confirmed[0]) if found.matching(digester).all() else NO_ENTRY


def gathered(data: bytes | memoryview, starts: Offsets, kind: np.dtype[Scalar]) -> npt.NDArray[Scalar]:
    """The values of one kind that begin at these offsets."""
    every: npt.NDArray[Scalar] = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    return every[starts]
