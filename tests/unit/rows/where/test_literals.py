"""Literals of option ``where``: exact values of the type of the column that they are compared with."""

from __future__ import annotations

import datetime
import pickle
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.rows.local_time import time_zone
from bk_spark.rows.where.condition import MAX_DEPTH, parse_where
from bk_spark.rows.where.filter import bind

NAN, INFINITY = float("nan"), float("inf")


def matching(text: str, values: list[Any], kind: pa.DataType, zone: str | None = None) -> list[Any]:
    """Those of ``values``, in column c, that match."""
    batch = pa.record_batch({"c": pa.array(values, kind)})
    placed = None if zone is None else time_zone(zone)
    return bind(parse_where("where", text), "orders", batch.schema, placed).matching(batch).column("c").to_pylist()


@pytest.mark.parametrize(
    ("text", "given", "kind", "expected"),
    [
        ("c > 2.5", [2, 3, None], pa.int32(), [3]),
        ("c >= 2.5", [2, 3, None], pa.int32(), [3]),
        ("c < 2.5", [2, 3], pa.int32(), [2]),
        ("c <= 2.5", [2, 3], pa.int32(), [2]),
        ("c = 2.5", [2, 3], pa.int32(), []),
        ("c != 2.5", [2, None], pa.int32(), [2]),
        ("c <= -2.5", [-2, -3], pa.int32(), [-3]),
        ("c < 1e30", [2**63 - 1, None], pa.int64(), [2**63 - 1]),
        ("c > 1e300", [1], pa.int64(), []),
        ("c >= -1e300", [1], pa.int64(), [1]),
        ("c = 369.1", [Decimal(369), Decimal(370)], pa.decimal128(38, 0), [Decimal(369)]),
        ("c = 9223372036854775807", [2**63 - 1, 2**63 - 2], pa.int64(), [2**63 - 1]),
        ("c = '7'", [7], pa.int8(), [7]),
        ("c > -300", [-128], pa.int8(), [-128]),
        ("c = 1.50", [Decimal("1.50"), Decimal("1.51")], pa.decimal128(5, 2), [Decimal("1.50")]),
        ("c > 1.505", [Decimal("1.50"), Decimal("1.51")], pa.decimal128(5, 2), [Decimal("1.51")]),
        ("c < 1e40", [Decimal("9" * 38)], pa.decimal128(38, 0), [Decimal("9" * 38)]),
        ("c IN (1.5, 9)", [Decimal("1.50"), Decimal(9), None], pa.decimal128(5, 2), [Decimal("1.50"), Decimal(9)]),
        ("c = true", [True, False, None], pa.bool_(), [True]),
        ("c < 'TRUE'", [True, False], pa.bool_(), [False]),
        ("c = 0.1", [0.1], pa.float64(), [0.1]),
        ("c = 0.5", [0.5], pa.float32(), [0.5]),
        ("c = 0", [0.0, -0.0, 1.0], pa.float64(), [0.0, -0.0]),
        ("c > 1e308", [INFINITY, 1.0], pa.float64(), [INFINITY]),
        ("c = 'Infinity'", [INFINITY, -INFINITY], pa.float64(), [INFINITY]),
        ("c IN ('', 'ž')", ["", "ž", None], pa.string(), ["", "ž"]),
        ("c > 'Z'", ["a", "Z", "ž"], pa.string(), ["a", "ž"]),
        ("c = X'00ff'", [b"\x00\xff", b"x"], pa.binary(), [b"\x00\xff"]),
        (
            "c >= '2026-01-31'",
            [datetime.date(2026, 1, 31), datetime.date(2026, 1, 30)],
            pa.date32(),
            [datetime.date(2026, 1, 31)],
        ),
        ("c = DATE '0001-01-01'", [datetime.date(1, 1, 1)], pa.date32(), [datetime.date(1, 1, 1)]),
        ("c = '23:59:59.999999'", [datetime.time(23, 59, 59, 999999)], pa.time64("ns"), [datetime.time(23, 59, 59, 999999)]),
        ("c IS NULL", [[1], None], pa.list_(pa.int64()), [None]),
        ("c IS NOT NULL", [{"x": None}, None], pa.struct([("x", pa.int64())]), [{"x": None}]),
        ("c IS NULL", [None], pa.null(), [None]),
    ],
)
def test_literals_become_values_of_the_columns_type(text, given, kind, expected) -> None:
    assert matching(text, given, kind) == expected


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_times_without_an_offset_are_in_the_zone_that_is_given_and_refused_without_one() -> None:
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    at = pa.timestamp("us", "UTC")
    for text in ("2026-01-31T12:00:00Z", "2026-01-31 14:30:00.000000+02:30"):
        assert matching(f"c = TIMESTAMP '{text}'", [noon, None], at) == [noon]
        assert matching(f"c = '{text}'", [noon], at, "Asia/Tokyo") == [noon]
    for text in ("'2026-01-31 13:00'", "TIMESTAMP '2026-01-31T13:00:00'", "TIMESTAMP_LTZ '2026-01-31 13:00:00'"):
        assert matching(f"c = {text}", [noon], at, "Europe/Berlin") == [noon]
        with pytest.raises(ConfigError, match=r"names no offset from UTC.*23:59:59Z or .* name the zone in option 'timeZone'"):
            matching(f"c = {text}", [noon], at)
    midnight = datetime.datetime(2026, 1, 30, 23, tzinfo=datetime.UTC)
    for text in ("'2026-01-31'", "DATE '2026-01-31'"):
        assert matching(f"c >= {text}", [midnight], at, "Europe/Berlin") == [midnight]
        assert matching(f"c >= {text}", [midnight], at, "UTC") == []
        with pytest.raises(ConfigError, match="option 'timeZone'"):
            matching(f"c >= {text}", [midnight], at)


@pytest.mark.usefixtures("far_from_utc")
def test_times_of_a_column_without_a_zone_need_none_and_dates_neither() -> None:
    plain, day = datetime.datetime(2026, 1, 31, 12), datetime.date(2026, 1, 31)
    for text in ("'2026-01-31 12:00:00'", "TIMESTAMP_NTZ '2026-01-31 12:00'"):
        assert matching(f"c = {text}", [plain], pa.timestamp("us")) == [plain]
        assert matching(f"c = {text}", [plain], pa.timestamp("us"), "Asia/Tokyo") == [plain]
    assert matching("c > DATE '2026-01-31'", [plain], pa.timestamp("us")) == [plain]
    assert matching("c = '2026-01-31'", [day], pa.date32(), "Asia/Tokyo") == [day]


def test_nan_equals_itself_and_is_above_all_other_numbers() -> None:
    values = [NAN, INFINITY, 1.0, None]

    def found(text: str) -> list[str]:
        return [str(one) for one in matching(text, values, pa.float64())]

    assert found("c = 'NaN'") == found("c >= 'nan'") == found("c IN ('NaN')") == ["nan"]
    assert found("c != 'NaN'") == found("c < 'NaN'") == ["inf", "1.0"]
    assert found("c <= 'NaN'") == ["nan", "inf", "1.0"]
    assert found("c > 'NaN'") == []
    assert found("c > 1") == ["nan", "inf"]
    assert found("c != 1") == ["nan", "inf"]
    assert found("c <= 'Infinity'") == ["inf", "1.0"]


def test_names_are_found_in_any_case_but_the_same_case_first() -> None:
    batch = pa.record_batch({"ID": [1], "id": [2]})
    bound = bind(parse_where("where", "id = 2"), "orders", batch.schema)
    assert bound.columns.names == ["id"]
    assert bind(parse_where("where", "Id = 2"), "orders", batch.schema).columns.names == ["ID"]


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("nope = 1", pa.int64(), "log 'orders' has no column 'nope', its columns are c"),
        ("c = 'x'", pa.int64(), "column 'c' is int64, what it is compared with: it must be a number"),
        ("c = true", pa.int64(), "it must be a number"),
        ("c = 'x'", pa.float64(), "it must be a number such as 5 or -1.5"),
        ("c = 5", pa.string(), "it must be a string in quotes"),
        ("c = 1", pa.bool_(), "it must be true or false"),
        ("c = 'abc'", pa.binary(), "it must be bytes such as X'00FF'"),
        ("c = X'0'", pa.binary(), "it must be bytes such as X'00FF'"),
        ("c = '2026-02-30'", pa.date32(), "it must be a date such as '2026-01-31'"),
        ("c = '20260201'", pa.date32(), "it must be a date"),
        ("c = TIMESTAMP '2026-01-01 00:00:00'", pa.date32(), "it must be a date"),
        ("c = 'soon'", pa.timestamp("us", "UTC"), "it must be a time such as"),
        ("c = '2026-01-01T00:00:00Z'", pa.timestamp("us"), "without an offset, as the column's are"),
        ("c = TIMESTAMP '2026-01-01 00:00:00'", pa.timestamp("us"), "write it in quotes alone, or as TIMESTAMP_NTZ"),
        ("c = TIMESTAMP_NTZ '2026-01-01 00:00:00'", pa.timestamp("us", "UTC"), "it must be a time such as"),
        ("c = 5", pa.list_(pa.int64()), "which has no order here: ask IS NULL or IS NOT NULL"),
        ("c = '5'", pa.duration("us"), "which has no order here"),
        ("c.x = 5", pa.int64(), "column 'c' is int64, which has no field 'x': only structs have fields, and a name with a dot"),
        ("c.x = 5", pa.list_(pa.struct([("x", pa.int64())])), "which has no field 'x': only structs have fields"),
        ("c.y.z = 5", pa.struct([("x", pa.int64())]), "column 'c' has no field 'y', its fields are x"),
        ("c.x.y = 5", pa.struct([("x", pa.int64())]), "column 'c.x' is int64, which has no field 'y'"),
        ("c.x = 'a'", pa.struct([("x", pa.int64())]), "column 'c.x' is int64, what it is compared with: it must be a number"),
        ("c = 5", pa.struct([("x", pa.int64())]), "which has no order here: ask IS NULL or IS NOT NULL"),
        ("c LIKE '5%'", pa.int64(), "what it is compared with: LIKE is for columns of strings"),
        ("c LIKE 5", pa.string(), "LIKE takes a pattern in quotes such as 'abc%'"),
        ("c NOT LIKE 'a!b' ESCAPE '!'", pa.string(), "in a pattern ! stands before %, _ or !"),
    ],
)
def test_a_condition_that_does_not_fit_the_columns_is_refused(text, kind, problem) -> None:
    with pytest.raises(ConfigError) as refused:
        bind(parse_where("where", text), "orders", pa.schema([("c", kind)]))
    assert problem in str(refused.value)


def test_a_bound_condition_pickles() -> None:
    batch = pa.record_batch({"c": [1.0, 6.0], "s": ["a", "b"]})
    bound = bind(parse_where("where", "c > 5 AND (c < 'NaN' OR s LIKE 'a%')"), "orders", batch.schema)
    assert pickle.loads(pickle.dumps(bound)).matching(batch).to_pylist() == [{"c": 6.0, "s": "b"}]


def test_the_deepest_condition_is_bound_pickled_and_evaluated() -> None:
    text = "c = 0"
    for level in range(MAX_DEPTH - 2):
        text = f"c = {level} {('AND', 'OR')[level % 2]} ({text})"
    batch = pa.record_batch({"c": range(MAX_DEPTH)})
    bound = pickle.loads(pickle.dumps(bind(parse_where("where", f"NOT (({text}))"), "orders", batch.schema)))
    assert bound.matching(batch).num_rows == MAX_DEPTH - 1
    assert bound.may_match(MAX_DEPTH, {})
