"""In which partition rows are, beside Iceberg's own implementation in Python."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import BinaryType, DateType, IcebergType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from bk_spark.errors import ConfigError
from bk_spark.lake.partitions import check_partitions, key_of, split
from bk_spark.log.stored.tier_settings import PartitionField, Tier

CHANCE = random.Random(38)
EPOCH = datetime(1970, 1, 1)
TIMES = [EPOCH + timedelta(microseconds=CHANCE.randint(-(10**16), 10**16)) for _ in range(200)]
VALUES: dict[str, tuple[pa.DataType, IcebergType, list[object]]] = {
    "int": (pa.int32(), IntegerType(), [CHANCE.randint(-(2**31), 2**31 - 1) for _ in range(200)]),
    "long": (pa.int64(), LongType(), [CHANCE.randint(-(2**63), 2**63 - 1) for _ in range(200)]),
    "date": (pa.date32(), DateType(), [date(1970, 1, 1) + timedelta(days=CHANCE.randint(-40_000, 40_000)) for _ in range(200)]),
    "time": (pa.timestamp("us"), TimestampType(), list(TIMES)),
    "time with zone": (pa.timestamp("us", "UTC"), TimestamptzType(), [one.replace(tzinfo=UTC) for one in TIMES]),
    "text": (pa.string(), StringType(), ["".join(CHANCE.choices("aü€😀 ", k=CHANCE.randint(1, 21))) for _ in range(200)]),
    "binary": (pa.binary(), BinaryType(), [CHANCE.randbytes(CHANCE.randint(1, 40)) for _ in range(200)]),
}
CASES = [(kind, how) for kind in VALUES for how in ("bucket(16, v)", "bucket(1000, v)")]
CASES += [(kind, f"{how}(v)") for kind in ("date", "time", "time with zone") for how in ("days", "months", "years")]
CASES += [(kind, "hours(v)") for kind in ("time", "time with zone")]


@pytest.mark.parametrize(("kind", "how"), CASES)
def test_each_value_is_in_the_partition_that_iceberg_says(kind: str, how: str) -> None:
    arrow, iceberg, values = VALUES[kind]
    partition = PartitionField.parse(how)
    given = pa.array([*values, None], arrow)
    for rows in (pa.record_batch({"v": given}), pa.record_batch({"v": given}).slice(7)):
        check_partitions([partition], rows.schema)
        name = f"bucket[{partition.count}]" if partition.count else partition.transform.rstrip("s")
        transform = parse_transform(name).transform(iceberg)
        for key, some in split(rows, [partition]):
            for value in some["v"].to_pylist():
                assert key == (None if value is None else transform(_internal(value)),), value
        assert sum(some.num_rows for _, some in split(rows, [partition])) == rows.num_rows


def _internal(value: object) -> object:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def test_examples_of_the_specification_and_values_that_are_false_in_python() -> None:
    rows = pa.record_batch({"n": pa.array([34, 0]), "t": ["iceberg", ""]})
    whole = 2**31 - 1
    [first, second] = [
        key_of(rows.slice(place, 1), [PartitionField("bucket", "n", whole), PartitionField("bucket", "t", whole)])
        for place in (0, 1)
    ]
    assert first == (2017239379, 1210000089)
    assert second[1] == 0
    assert second[0] is not None


def test_rows_of_several_fields_are_split_in_their_order() -> None:
    rows = pa.record_batch({"d": pa.array([1, 0, 1, None], pa.int32()).cast(pa.date32()), "n": [5, 6, 5, 7]})
    found = {
        key: some["n"].to_pylist() for key, some in split(rows, [PartitionField("days", "d"), PartitionField("bucket", "n", 1)])
    }
    assert found == {(1, 0): [5, 5], (0, 0): [6], (None, 0): [7]}


def test_rows_without_the_column_are_in_the_partition_of_nulls() -> None:
    rows = pa.record_batch({"n": [5, 6]})
    assert [key for key, _ in split(rows, [PartitionField("days", "at"), PartitionField("bucket", "n", 1)])] == [(None, 0)]


@pytest.mark.parametrize("how", ["", "days", "days()", "truncate(3, a)", "bucket(0, a)", "bucket(a)", "days(a) ", 7, None])
def test_what_is_no_partition_is_refused(how: str) -> None:
    for given in ([how], how) if how != "" else ([how],):
        with pytest.raises(ConfigError, match="as in days"):
            Tier("file:///lake", "a.b", partition=given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("days(x)", "the log has no column 'x'"),
        ("days(n)", "takes dates and timestamps"),
        ("hours(d)", "column 'd' is date32"),
        ("bucket(3, f)", "column 'f' is double"),
    ],
)
def test_columns_that_cannot_be_partitioned_so_are_named(how: str, told: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("d", pa.date32()), ("f", pa.float64())])
    with pytest.raises(ConfigError, match=told):
        check_partitions([PartitionField.parse(how)], schema)


def test_settings_are_read_back_with_their_partitions() -> None:
    tier = Tier("file:///lake", "a.b", partition=["bucket( 3,my col )", "days(at)"])
    assert tier.partition == ("bucket(3, my col)", "days(at)")
    assert Tier.decode("it", tier.encode()) == tier
    with pytest.raises(ConfigError, match="given twice"):
        Tier("file:///lake", "a.b", partition=["days(at)", "days(at)"])
