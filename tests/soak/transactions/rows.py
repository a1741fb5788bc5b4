"""Which logs a transaction changes, and with which rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

LOGS = ("orders", "payments", "shipments")

SOURCE = "source"
"""What the stream reads."""
INTO = tuple(f"into-{number}" for number in range(20))
"""Where its rows go."""

Name = tuple[str, int]
"""The writer of a transaction, and its number."""


def logs_of(number: int) -> tuple[str, ...]:
    """Two of the three logs, or all."""
    return tuple(log for place, log in enumerate(LOGS) if place != number % 4)


def row_count(number: int) -> int:
    return 1 + number % 5


def rows_of(writer: str, number: int) -> pa.Table:
    count = row_count(number)
    return pa.table({"writer": [writer] * count, "number": pa.array([number] * count, pa.int64())})


def counted(batches: Iterable[pa.RecordBatch]) -> Counter[Name]:
    """How many rows of each transaction there are."""
    found: Counter[Name] = Counter()
    for batch in batches:
        found.update(zip(batch.column("writer").to_pylist(), batch.column("number").to_pylist(), strict=True))
    return found
