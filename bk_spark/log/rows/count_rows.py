"""Counts the rows of a leader's ledger, for whoever recovers it: its leader was killed or displaced before it could say."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.rows.codec import rows_up_to
from bk_spark.rows.parts import decode_part, rows_begun


def count_rows(handle: ReadHandle) -> int:
    """The rows of a closed ledger. Its last entry says how many stand before it; if not, all entries are looked at.

    Raises BookieUnavailableError; CorruptionError for entries that are no rows.
    """
    last = handle.last_add_confirmed
    if last == NO_ENTRY:
        return 0
    ((_, payload),) = _payloads(handle, last, last)
    if decode_part(payload, _what(handle, last)) is None:
        rows = rows_up_to(payload, _what(handle, last))
        if rows is not None:
            return rows
    return sum(rows_begun(one, _what(handle, entry_id)) for entry_id, one in _payloads(handle, 0, last))


def _payloads(handle: ReadHandle, first: int, last: int) -> Iterator[tuple[int, pa.Buffer]]:
    for batch in handle.read(first, last):
        for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
            yield entry_id, payload.as_buffer()


def _what(handle: ReadHandle, entry_id: int) -> str:
    return f"the payload of entry {entry_id} of ledger {handle.ledger_id}"
