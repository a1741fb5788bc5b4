"""Entries of rows as record batches: columns of the payloads, and columns that are added to them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from bk_spark.errors import WrongValueError
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder
from bk_spark.rows.reading import BATCH_ROWS, rows_as
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind

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


WRONG = pa.record_batch(
    {
        "n": pa.array([1, 2, 3], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("123.45"), None]).cast(pa.decimal128(4, 2), safe=False),
        "at": pa.array([[0], None, [86_400 * 10**9]], pa.list_(pa.int64())).view(pa.list_(pa.time64("ns"))),
    }
)


def wrong_rows(names: str, where: str | None = None, **options: bool) -> list[dict[str, object]]:
    condition = None if where is None else bind(parse_where("where", where), "orders", WRONG.schema)
    convert = rows_as(pa.schema([WRONG.schema.field(name) for name in names.split()]), None, condition, **options)
    return [row for batch in convert(7, entries(WRONG).slice(0, 1)) for row in batch.to_pylist()]


def test_a_value_that_its_type_does_not_have_is_named_with_its_entry_and_is_no_damage() -> None:
    with pytest.raises(WrongValueError, match=r"the payload of entry 0 of ledger 7 holds 123.45 in column 'price', which no d"):
        wrong_rows("n price")
    with pytest.raises(WrongValueError, match=r"holds 24:00:00 in column 'at.element', which no time64\[ns\] can be"):
        wrong_rows("at")


def test_other_columns_and_rows_than_that_of_a_wrong_value_are_read() -> None:
    assert wrong_rows("n") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert wrong_rows("n price", "n != 2") == [{"n": 1, "price": Decimal("1.50")}, {"n": 3, "price": None}]
    assert wrong_rows("n price", "price <= 99.99") == [{"n": 1, "price": Decimal("1.50")}]
    assert wrong_rows("n", "price > 99.99") == [{"n": 2}]
    assert [row["n"] for row in wrong_rows("n at", "n < 3")] == [1, 2]
    with pytest.raises(WrongValueError):
        wrong_rows("price", "n >= 2")


def test_who_copies_rows_gets_every_value() -> None:
    [batch] = rows_as(WRONG.schema, checks_values=False)(7, entries(WRONG).slice(0, 1))
    assert batch.equals(WRONG)
