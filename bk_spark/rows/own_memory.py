"""Rows in memory that nobody changes any more: what was handed over is what is stored.

A numpy column becomes an Arrow array without a copy, and the program may fill its buffer again. No buffer says whether somebody
can still write to it (client/ledger/payloads.py), so all that comes from outside is copied before it waits or is looked at: the
statistics and the rows of an entry are then of the same values, too. The copy takes a twentieth of what encoding takes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa


def in_own_memory(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, copied: of a slice its own rows alone. Columns have the types that a log stores (arrow_types.py)."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def taken_rows(rows: Any) -> Any:
    """Arrow data in memory as a copy; all else as it is. None: Arrow cannot copy it, and it is to be converted at once.

    Of a dictionary of an extension type Arrow writes a stream that it does not read.
    """
    if not isinstance(rows, (pa.RecordBatch, pa.Table)):
        return rows
    sink = pa.BufferOutputStream()
    with suppress(pa.ArrowException, OSError):
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write(rows)
        return pa.ipc.open_stream(sink.getvalue()).read_all()
    return None
