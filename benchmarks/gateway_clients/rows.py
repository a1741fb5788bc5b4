"""Rows that each language makes alike: 5 columns, 60 bytes a row, from a multiplicative hash of the row's number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

BATCH_ROWS = 65_536
_MIXER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: the product's upper bits look like chance."""
_NAMES = pa.array([f"customer {997 * one:07d}" for one in range(1000)])


def made(first: int, count: int) -> pa.Table:
    """The rows ``first`` to ``first + count - 1``."""
    ids = np.arange(first, first + count)
    mixed = ids.astype(np.uint64) * _MIXER
    return pa.table(
        {
            "id": ids,
            "day": (ids // 1000 % 365).astype(np.int32),
            "amount": ((mixed >> np.uint64(40)) % np.uint64(100_000)).astype(np.int64),
            "price": (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53,
            "name": _NAMES.take(pa.array(((mixed >> np.uint64(32)) % np.uint64(1000)).astype(np.int64))),
        }
    )


def parts(rows: int, commits: int) -> Iterator[pa.Table]:
    each = rows // commits
    return (made(commit * each, each) for commit in range(commits))


def check_made(batches: Iterable[pa.RecordBatch], rows: int) -> None:
    """Raises SystemExit unless these are the first ``rows`` rows, in order."""
    found = 0
    for batch in batches:
        if not pa.Table.from_batches([batch]).equals(made(found, batch.num_rows)):
            raise SystemExit(f"among rows {found} to {found + batch.num_rows - 1} is another one")
        found += batch.num_rows
    if found != rows:
        raise SystemExit(f"{found} rows came of {rows}")
