"""Entries of rows as record batches: columns of the payloads, and columns that are added to them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder
from bk_spark.rows.reading import BATCH_ROWS, rows_as

FORMAT = PayloadFormat(compression="none", max_rows=BATCH_ROWS + 1, max_bytes=1 << 20)
NUMBERS = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
ADDED = {"_at": lambda ledger_id, entry_id: 100 * ledger_id + entry_id, "_log": lambda ledger_id, entry_id: None}


def entries(rows: pa.RecordBatch = NUMBERS) -> pa.RecordBatch:
    [(payload, _)] = RowEncoder("orders", rows.schema, FORMAT).encode(rows)
    return pa.record_batch({"entry_id": [0, 1], "payload": [payload.to_pybytes()] * 2})


def read(*fields: tuple[str, pa.DataType]) -> list[dict[str, object]]:
    return [row for batch in rows_as(pa.schema(fields), ADDED)(7, entries()) for row in batch.to_pylist()]


def test_added_columns_have_one_value_for_each_entry() -> None:
    found = read(("_at", pa.int64()), ("n", pa.int64()), ("_log", pa.string()))
    assert found == [{"_at": at, "n": n, "_log": None} for at in (700, 701) for n in (1, 2, 3)]


def test_only_added_columns_have_as_many_rows_and_no_payload_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowDecoder, "decode", lambda *given: pytest.fail("decoded"))
    assert read(("_at", pa.int64())) == [{"_at": at} for at in (700, 701) for _ in range(3)]


def test_a_payload_of_many_rows_is_cut_where_columns_are_added() -> None:
    flags = pa.record_batch({"flag": pa.array([True] * (BATCH_ROWS + 1))})
    schema = pa.schema([("flag", pa.bool_()), ("_at", pa.int64())])
    batches = list(rows_as(schema, ADDED)(7, entries(flags)))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 1] * 2
    assert set(batches[-1].column("_at").to_pylist()) == {701}
