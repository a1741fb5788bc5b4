"""Record batches → arrays of payloads to append: what Spark's tasks and writers without Spark share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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
    cut_of: Callable[[int], PayloadFormat] | None = None,
) -> Iterator[tuple[int, pa.BinaryArray, int]]:
    """Arrays of payloads of up to ``add_bytes``, each with its lane and the number of its rows; in each lane in their order.

    ``batches`` come with their lanes (``lanes.in_lanes``). ``schema`` is the stored one. ``cut_of`` tells the format of one
    lane's payloads, where the lanes are of several logs: only its columns differ from ``cut``. Raises as ``RowEncoder.encode``.
    """
    encoders: dict[PayloadFormat, RowEncoder] = {}

    def encoder(lane: int) -> RowEncoder:
        own = cut if cut_of is None else cut_of(lane)
        if own not in encoders:
            encoders[own] = RowEncoder(log, schema, own)
        return encoders[own]

    pieces = batches_of_lanes(batches, cut.max_rows, cut.max_bytes)
    payloads = ((lane, *payload) for lane, piece in pieces for payload in in_parts(encoder(lane).encode(piece)))
    yield from gathered_payloads(payloads, add_bytes)
