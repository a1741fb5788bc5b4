"""Record batches → arrays of payloads to append: what Spark's tasks and writers without Spark share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.gathering import batches_of_lanes, gathered_payloads
from bk_spark.rows.parts import in_parts


def row_payloads(
    log: str,
    schema: pa.Schema,
    cut: PayloadFormat,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    add_bytes: int,
    key_of: Callable[[int], tuple[str, ...]] | None = None,
) -> Iterator[tuple[int, pa.BinaryArray, int]]:
    """Arrays of payloads of up to ``add_bytes``, each with its lane and the number of its rows; in each lane in their order.

    ``batches`` come with their lanes (``lanes.in_lanes``). ``schema`` is the stored one. ``key_of`` tells the key columns of a
    lane, where the lanes are of several logs. Raises as ``RowEncoder.encode``.
    """
    encoders: dict[tuple[str, ...], RowEncoder] = {}

    def encoder(lane: int) -> RowEncoder:
        key = cut.key if key_of is None else key_of(lane)
        if key not in encoders:
            encoders[key] = RowEncoder(log, schema, replace(cut, key=key))
        return encoders[key]

    pieces = batches_of_lanes(batches, cut.max_rows, cut.max_bytes)
    payloads = ((lane, *payload) for lane, piece in pieces for payload in in_parts(encoder(lane).encode(piece)))
    yield from gathered_payloads(payloads, add_bytes)
