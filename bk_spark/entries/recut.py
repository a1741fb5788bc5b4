"""Cuts batches, and joins small ones, whatever the form of their entries.

Ref: docs/formats.md, "A batch of entries".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bk_spark.config import MAX_BATCH_BYTES
from bk_spark.entries.apache_entries import ApacheEntries, apache_entries, encode_apache, encode_stretches
from bk_spark.entries.batch import (
    BatchHeader,
    EncodedBatch,
    EntryBatch,
    batch_name,
    confirmed_of,
    decode,
    encode,
    numbers,
    read_body,
)
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import CorruptionError


def cut(encoded: EncodedBatch, first: int, last: int) -> EncodedBatch | None:
    """The entries with ids from ``first`` to ``last``, inclusive; the batch itself, not decoded, if those are all."""
    header = encoded.header
    if first <= header.first_entry_id and header.last_entry_id <= last:
        return encoded
    if header.is_apache:
        whole = apache_entries(encoded)
        kept = whole.select((whole.entry_ids >= first) & (whole.entry_ids <= last))
        return encode_apache(kept, header.pattern) if len(kept) else None
    assert header.digest_type is not None
    batch = decode(encoded)
    wanted = (batch.entry_ids >= first) & (batch.entry_ids <= last)
    return encode(batch.select(wanted), header.digest_type, header.pattern)


def coalesce(batches: Sequence[EncodedBatch]) -> EncodedBatch:
    """At least one batch, each followed by the next (``BatchHeader.is_followed_by``), joined into one with the same entries.

    Raises CorruptionError if a batch does not match its header, does not begin where the one before it ended, or if all
    together exceed the bounds of a batch: the batches can then be kept as they are.
    """
    if len(batches) == 1:
        return batches[0]
    headers = [batch.header for batch in batches]
    for header, following in pairwise(headers):
        if not header.is_followed_by(following):
            raise _not_following(header, following)
    digest_type = headers[0].digest_type
    assert digest_type is not None  # whole entries may become several batches
    joined = encode(_joined(batches, headers), digest_type, headers[0].pattern)
    assert joined is not None  # no batch is empty
    return _checked(joined)


def coalesce_whole(batches: Sequence[EncodedBatch]) -> list[EncodedBatch]:
    """The same for batches of whole entries: as few batches as the patterns of their ids allow."""
    parts = [apache_entries(batch) for batch in batches]
    ids = np.concatenate([part.entry_ids for part in parts])
    whole = ApacheEntries(parts[0].ledger_id, ids, pa.concat_arrays([part.entries for part in parts]))
    return [_checked(batch) for batch in encode_stretches(whole)]


def _checked(joined: EncodedBatch) -> EncodedBatch:
    if len(joined.body) > MAX_BATCH_BYTES:
        raise CorruptionError(batch_name(joined.header), f"{len(joined.body)} bytes, the maximum is {MAX_BATCH_BYTES}")
    return joined


def _joined(batches: Sequence[EncodedBatch], headers: Sequence[BatchHeader]) -> EntryBatch:
    """All entries of ``batches``. Work for each batch is kept small: there may be thousands of batches with one entry each."""
    first = headers[0]
    bodies = [read_body(batch) for batch in batches]
    counts = [body.num_rows for body in bodies]
    ends = np.cumsum(counts)
    payloads = pa.concat_arrays([body.column("payload") for body in bodies])
    digests = pa.concat_arrays([body.column("digest") for body in bodies])
    entry_ids = first.pattern.ids(first.first_entry_id, headers[-1].last_entry_id)
    if first.pattern.is_dense:
        lengths = first.length_before + np.cumsum(payload_sizes(payloads))
        for number in np.flatnonzero(lengths[ends[:-1] - 1] != [header.length_before for header in headers[1:]]).tolist():
            raise _not_following(headers[number], headers[number + 1])
    else:
        lengths = np.concatenate([numbers(body.column("length")) for body in bodies])
    confirmed = np.repeat(np.array([header.last_add_confirmed for header in headers], dtype=np.int64), counts)
    for header, body, end in zip(headers, bodies, ends, strict=True):
        if header.mixed_lac:
            rows = slice(end - body.num_rows, end)
            confirmed[rows] = confirmed_of(header, body, entry_ids[rows])
    return EntryBatch(first.ledger_id, entry_ids, confirmed, lengths, digests, payloads)


def _not_following(header: BatchHeader, following: BatchHeader) -> CorruptionError:
    return CorruptionError(batch_name(following), f"it does not go on where {batch_name(header)} ends")
