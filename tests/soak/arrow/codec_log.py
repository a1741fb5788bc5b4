"""A log in memory: the gate, the codec and the reader of the real one, without bookies and metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from bk_spark.log.rows import append_rows, given_rows, row_form
from bk_spark.log.stored.schema import MERGE_ARGUMENT, appended_schema, parse_schema, timestamps_of_dates
from bk_spark.rows import conversion
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.lanes import in_lanes
from bk_spark.rows.reading import rows_as
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind
from bk_spark.rows.writing import row_payloads

NAME = "orders"


class CodecLog:
    """As ``Log.append_rows``, a row writer, and ``Log.read_rows``. One thread uses it."""

    merges_at_once = False

    def __init__(self, compression: str, max_rows: int) -> None:
        self._cut = PayloadFormat(compression=compression, max_rows=max_rows, max_bytes=1 << 20)
        self._schema: dict[str, Any] | None = None
        self._payloads: list[bytes] = []

    def refuses(self, before: dict[str, pa.DataType], after: dict[str, pa.DataType]) -> bool:
        return False

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._schema) if self._schema is not None else pa.schema([])

    def append(self, rows: Any, *, merge: bool, scribble: Callable[[], None], is_whole: bool = True) -> None:
        stream = given_rows.stream_of(NAME, rows)
        taken = conversion.Conversion(NAME, stream.schema)
        schema, dates = self._appended(taken.schema, merge=merge)
        given = [append_rows.in_own_memory(taken.of(batch)) for batch in given_rows.batches_of(NAME, stream)]
        batches = [append_rows.check_dates(NAME, batch, dates) for batch in given]
        scribble()
        found = row_payloads(NAME, taken.stored, self._cut, in_lanes(iter(batches), (), 1), 1 << 20)
        self._payloads += [one.as_py() for _, payloads, _ in found for one in payloads]
        self._schema = schema

    def write(self, rows: Any, schema: pa.Schema, *, merge: bool, scribble: Callable[[], None]) -> None:
        """By a row writer that has the columns ``schema``."""
        taken = conversion.Conversion(NAME, schema)
        merged, dates = self._appended(taken.schema, merge=merge)
        batches = row_form.RowForm(NAME, taken.stored, dates).of(rows)
        scribble()
        encoder = RowEncoder(NAME, taken.stored, self._cut)
        self._payloads += [payload.to_pybytes() for batch in batches for payload, _ in encoder.encode(batch)]
        self._schema = merged

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        stored = self.schema
        condition = None if where is None else bind(parse_where("where", where), NAME, stored)
        wanted = stored if columns is None else pa.schema([stored.field(name) for name in columns])
        convert = rows_as(wanted, where=condition)
        entries = pa.record_batch({"entry_id": range(len(self._payloads)), "payload": pa.array(self._payloads, pa.binary())})
        return pa.Table.from_batches(convert(7, entries), wanted)

    def elsewhere(self) -> Iterable[tuple[str, list[pa.Table]]]:
        return ()

    def _appended(self, given_schema: dict[str, Any], *, merge: bool) -> tuple[dict[str, Any], frozenset[str]]:
        given = parse_schema(NAME, json.dumps(given_schema))
        if self._schema is None:
            return given, frozenset()
        appended = appended_schema(NAME, self._schema, given, merge=merge, option=MERGE_ARGUMENT)
        return appended, timestamps_of_dates(given, appended)
