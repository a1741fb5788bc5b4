"""The log of a run, and the plain form of its rows."""

from __future__ import annotations

import pyarrow as pa

LOG = "under-fire"

Row = tuple[int, int]
"""The number of an append, and the row's number in it."""


def read_rows(table: pa.Table) -> list[Row]:
    return list(zip(table["append"].to_pylist(), table["number"].to_pylist(), strict=True))
