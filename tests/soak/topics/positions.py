"""Starts at a publish time and at a durable subscription's position, against where Pulsar's own client goes on."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark import BookKeeper
from tests.soak.topics.client import Client
from tests.soak.topics.compare import ids_of

POSITIONED = ("plain-none", "batched-none", "batched-zstd", "chunked-lz4")
"""One producer each, at a time, or two: their publish times hardly go back."""

Place = tuple[int, int, int]
"""Ledger, entry, index in the batch."""

TIMES, CURSORS = 20, 4
"""Of each topic."""


def unlike_positions(bookkeeper: BookKeeper, pulsar_uri: str, client: Client, topic: str, whole: pa.Table) -> list[str]:
    """One sentence for each start that is not where it should be. ``whole``: all messages of the topic, without partitions."""
    opened = bookkeeper.open_topic(topic, pulsar_metadata=pulsar_uri)
    chance = random.Random(topic)
    told = []
    times = whole.column("_publish_time").cast(pa.int64()).to_numpy() // 1000
    for _ in range(TIMES):
        wanted = int(times[chance.randrange(len(times))]) + chance.choice((-1, 0, 1))
        found = _first(opened.read(start_time_ms=wanted))
        told += [] if _is_start_of(found, whole, times, wanted) else [f"{topic}: from {wanted} ms on comes {found}"]
    for number in range(CURSORS):
        place = chance.randrange(whole.num_rows - 1)
        name = f"cursor-{number}"
        wanted_id = client.leave(topic, name, place)
        found = _first(opened.read(subscription=name))
        if found != wanted_id:
            told.append(f"{topic}: subscription '{name}' goes on at {wanted_id}, and here comes {found}")
    return told


def _first(batches: Iterable[pa.RecordBatch]) -> Place | None:
    return next((_places(batch)[0] for batch in batches if batch.num_rows), None)


def _places(rows: pa.RecordBatch | pa.Table) -> list[Place]:
    found: list[Place] = ids_of(rows).tolist()
    return found


def _is_start_of(found: Place | None, whole: pa.Table, times: npt.NDArray[np.int64], wanted: int) -> bool:
    """Whether no message of that time or later lies before the first one, which itself is not older.

    Times of two producers, or of the messages of a chunk, may go back a little: so only messages that are older than all
    behind them, or newer than all before them, tell something.
    """
    later = np.flatnonzero(np.minimum.accumulate(times[::-1])[::-1] >= wanted)
    if found is None:
        return not len(later)
    place = _places(whole).index(found)
    sure_old = np.flatnonzero(np.maximum.accumulate(times) < wanted)
    return (not len(later) or place <= later[0]) and (not len(sure_old) or place > sure_old[-1])
