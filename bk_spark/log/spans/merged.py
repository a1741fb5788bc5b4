"""Rows that come in order from each of several lanes, in one order over all. Memory holds a batch of each lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.log.stored.by_key.settings import PLACE
from bk_spark.rows.gathering import as_one


def merged(lanes: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Batches of one schema with the column PLACE: ascending in each lane, and then ascending over all. None is empty."""
    rest, heads = dict(enumerate(lanes)), dict[int, pa.RecordBatch]()
    while True:
        for lane in [one for one in rest if one not in heads]:
            batch = next(rest[lane], None)
            if batch is None:
                del rest[lane]
            else:
                heads[lane] = batch
        if not heads:
            return
        yield _in_order(_taken(heads))


def places_of(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The column PLACE."""
    found: npt.NDArray[np.int64] = rows.column(rows.schema.get_field_index(PLACE)).to_numpy()
    return found


def _taken(heads: dict[int, pa.RecordBatch]) -> list[pa.RecordBatch]:
    """All rows that no later batch of any lane comes before. Leaves the others in ``heads``."""
    last = min(int(places_of(batch)[-1]) for batch in heads.values())
    taken = []
    for lane, batch in list(heads.items()):
        count = int(np.searchsorted(places_of(batch), last, "right"))
        if count:
            taken.append(batch.slice(0, count))
        if count < batch.num_rows:
            heads[lane] = batch.slice(count)
        else:
            del heads[lane]
    return taken


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = as_one(batches)
    return rows if len(batches) == 1 else rows.take(pa.array(np.argsort(places_of(rows), kind="stable")))
