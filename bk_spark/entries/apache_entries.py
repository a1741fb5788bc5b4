"""Batches of Apache's entries: each one in one piece, as a client of Apache BookKeeper sent it.

Such an entry carries its ids, last add confirmed (LAC) and length itself, then a digest and the payload. Nothing in it says of
which type the digest is, and so where the payload begins. A bookie need not know: it keeps the bytes, and gives them back.
Whoever knows the ledger's metadata takes the entries apart (``own_batches``).

An Apache client adds entry by entry, and with striping each bookie gets only some of the ids. ``stretches`` finds the patterns
in these ids, so that thousands of single adds become one batch.

Ref: docs/formats.md, "A batch of entries"; Apache BookKeeper's DigestManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import MAX_BATCH_ENTRIES, DigestType
from bk_spark.entries.batch import (
    NO_ENTRY,
    BatchHeader,
    EncodedBatch,
    EntryBatch,
    batch_name,
    body_schema,
    decode,
    encode,
    read_body,
)
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import payload_offsets, payload_sizes
from bk_spark.entries.entry_bytes import Places, entries_of, gathered, interleaved
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, MAX_ENSEMBLE_SIZE, IdPattern

LEAST_BYTES = 24
"""Ledger id, entry id and LAC: what a bookie reads of an entry."""

_LAC_AT = 16
_NUMBER = np.dtype(">i8")


@dataclass(frozen=True, slots=True)
class ApacheEntries:
    """Entries of one ledger as Apache's clients send them, ascending by id."""

    ledger_id: int
    entry_ids: npt.NDArray[np.int64]
    entries: pa.BinaryArray
    """Each has at least LEAST_BYTES."""

    def __len__(self) -> int:
        return len(self.entry_ids)

    def select(self, rows: slice | npt.NDArray[np.bool_]) -> ApacheEntries:
        if isinstance(rows, slice):
            start, end, _ = rows.indices(len(self))
            return ApacheEntries(self.ledger_id, self.entry_ids[rows], self.entries.slice(start, end - start))
        if rows.all():
            return self
        kept = np.flatnonzero(rows)
        if len(kept) and kept[-1] - kept[0] + 1 == len(kept):
            return self.select(slice(int(kept[0]), int(kept[-1]) + 1))
        taken = self.entries.take(pa.Array.from_buffers(pa.int64(), len(kept), [None, pa.py_buffer(kept.astype(np.int64))]))
        return ApacheEntries(self.ledger_id, self.entry_ids[kept], taken)


def encode_apache(entries: ApacheEntries, pattern: IdPattern = DENSE) -> EncodedBatch:
    """A batch of Apache's entries, at least one, as bytes. The ids must be those of ``pattern`` from the first to the last."""
    confirmed = int(_confirmed(entries.entries).max())
    first, last = int(entries.entry_ids[0]), int(entries.entry_ids[-1])
    header = BatchHeader(entries.ledger_id, first, last, pattern, confirmed, 0, None)
    body = pa.RecordBatch.from_arrays([entries.entries], schema=body_schema(header)).serialize().to_pybytes()
    return EncodedBatch(header, body, crc32c(body))


def apache_entries(encoded: EncodedBatch) -> ApacheEntries:
    """The entries of any batch, also of our own layout, in Apache's form: each in one piece. Raises CorruptionError if the
    bytes do not match the header."""
    header = encoded.header
    if header.digest_type is not None:
        batch = decode(encoded)
        return ApacheEntries(header.ledger_id, batch.entry_ids, interleaved(batch, header.digest_type))
    entries = read_body(encoded).column("entry")
    if payload_sizes(entries).min() < LEAST_BYTES:
        raise CorruptionError(batch_name(header), f"an entry of fewer than {LEAST_BYTES} bytes")
    return ApacheEntries(header.ledger_id, header.pattern.ids(header.first_entry_id, header.last_entry_id), entries)


def encode_stretches(entries: ApacheEntries) -> list[EncodedBatch]:
    """Ascending entries as few batches as their ids allow."""
    return [encode_apache(entries.select(rows), pattern) for rows, pattern in stretches(entries.entry_ids)]


def own_batches(encoded: EncodedBatch, digest_type: DigestType) -> Iterator[EncodedBatch]:
    """The same entries in batches of our own layout, with ``digest_type``, the ledger's. A batch that is one stays as it is.

    Mostly one batch: a dense one is cut where the lengths of its entries do not add up. Raises CorruptionError for entries that
    are too short, or not those that the header names.
    """
    pattern = encoded.header.pattern
    if not encoded.header.is_apache:
        yield encoded
        return
    batch = decode_as(encoded, digest_type)
    for start, end in pairwise(length_breaks(batch, pattern)):
        piece = encode(batch.slice(start, end - start), digest_type, pattern)
        assert piece is not None  # no batch is empty
        yield piece


def decode_as(encoded: EncodedBatch, digest_type: DigestType) -> EntryBatch:
    """The entries of any batch; ``digest_type`` is that of Apache's. Raises CorruptionError as ``own_batches``."""
    header = encoded.header
    if not header.is_apache:
        return decode(encoded)
    batch = entries_of(header.ledger_id, digest_type, *_data(read_body(encoded).column("entry")))
    if not np.array_equal(batch.entry_ids, header.pattern.ids(header.first_entry_id, header.last_entry_id)):
        raise CorruptionError(batch_name(header), "its entries say that they are others")
    return batch


def length_breaks(batch: EntryBatch, pattern: IdPattern) -> list[int]:
    """Where batches of ``pattern`` begin, and the end.

    In a dense batch the lengths add up. Those of Java's LedgerHandleAdv may not.
    """
    breaks: list[int] = []
    if pattern.is_dense:
        sums = batch.lengths[:-1] + payload_sizes(batch.payloads)[1:]
        breaks = (np.flatnonzero(batch.lengths[1:] != sums) + 1).tolist()
    return [0, *breaks, len(batch)]


def stretches(entry_ids: npt.NDArray[np.int64]) -> Iterator[tuple[slice, IdPattern]]:
    """Ascending ids, cut where one pattern ends and another begins. Most stripes are one stretch."""
    at = 0
    while at < len(entry_ids):
        left = entry_ids[at : at + MAX_BATCH_ENTRIES]
        left = left[left - left[0] < MAX_BATCH_ENTRIES]
        pattern = _pattern_at_start(left)
        expected = pattern.ids(int(left[0]), int(left[-1]))[: len(left)]
        same = left[: len(expected)] == expected
        count = len(same) if same.all() else int(np.argmin(same))
        yield slice(at, at + count), pattern
        at += count


def _pattern_at_start(ids: npt.NDArray[np.int64]) -> IdPattern:
    """The pattern of the first ids: E and Qw follow from the first two gaps. It holds the first id, and mostly all."""
    steps = np.diff(ids)
    gaps = np.flatnonzero(steps > 1)[:2].tolist()
    if not gaps or gaps[0] + 1 > MAX_ENSEMBLE_SIZE:
        return DENSE
    before, after = int(ids[gaps[0]]), int(ids[gaps[0] + 1])
    if len(gaps) == 2:
        size = int(ids[gaps[1] + 1]) - after
        quorum = size - (after - before) + 1
    else:
        quorum = max(gaps[0] + 1, len(ids) - gaps[0] - 1)
        size = quorum + (after - before) - 1
    if not (gaps[0] < quorum < size <= MAX_ENSEMBLE_SIZE):
        return DENSE
    return IdPattern(size, quorum, before % size)


def _confirmed(entries: pa.BinaryArray) -> npt.NDArray[np.int64]:
    data, places = _data(entries)
    confirmed = gathered(data, places[:, 0] + _LAC_AT, _NUMBER).astype(np.int64)
    if confirmed.min() < NO_ENTRY:
        raise CorruptionError("an entry", f"a last add confirmed of {confirmed.min()}")
    return confirmed


def _data(entries: pa.BinaryArray) -> tuple[memoryview, Places]:
    offsets = payload_offsets(entries).astype(np.int64)
    return memoryview(entries.buffers()[2]), np.stack([offsets[:-1], offsets[1:]], axis=1)
