"""The row group of several ledgers that a thread decoded last: who reads a log finds its next ledger in the same one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.log.tier.row_order import by_ledger

MOST_BYTES = 64 * MIB
"""Of a row group that is kept. Ours have 4 MiB, or a large entry; each thread that reads keeps one."""


@dataclass(slots=True)
class KeptGroup:
    """``key`` says which rows and columns it has."""

    key: tuple[str | int, ...]
    nbytes: int = 0
    rows: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """Of each ledger, in their order."""


class _Local(threading.local):
    group: KeptGroup | None = None


_local: Final = _Local()


def kept(key: tuple[str | int, ...]) -> KeptGroup | None:
    """What this thread keeps, if it is that."""
    return _local.group if _local.group is not None and _local.group.key == key else None


def keeping(key: tuple[str | int, ...], batches: Iterable[pa.RecordBatch], ledger_id: int) -> Iterator[pa.RecordBatch]:
    """The rows of one ledger in a row group, which is kept if it is taken to its end. What was kept before is not any more."""
    _local.group = None
    group = KeptGroup(key)
    for batch in batches:
        group.nbytes += batch.nbytes
        for one, rows in by_ledger(batch):
            if group.nbytes <= MOST_BYTES:
                group.rows.setdefault(one, []).append(rows)
            if one == ledger_id:
                yield rows
        if group.nbytes > MOST_BYTES:
            group.rows.clear()
    if group.nbytes <= MOST_BYTES:
        _local.group = group
