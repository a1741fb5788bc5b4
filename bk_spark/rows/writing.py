"""Record batches → arrays of payloads to append: what Spark's tasks and writers without Spark share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.gathering import gathered_batches, gathered_payloads
from bk_spark.rows.parts import in_parts


def row_payloads(
    log: str, schema: pa.Schema, cut: PayloadFormat, batches: Iterable[pa.RecordBatch], add_bytes: int
) -> Iterator[tuple[pa.BinaryArray, int]]:
    """Arrays of payloads of up to ``add_bytes``, each with the number of its rows, in the order of the rows.

    ``schema`` is the stored one. Raises as ``RowEncoder.encode``.
    """
    encoder = RowEncoder(log, schema, cut)
    pieces = gathered_batches(batches, cut.max_rows, cut.max_bytes)
    yield from gathered_payloads(in_parts(itertools.chain.from_iterable(map(encoder.encode, pieces))), add_bytes)
