"""The digest of a ledger's rows depends on the rows alone."""

from __future__ import annotations

import io
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bk_spark.lake.digest import LedgerDigest, runs
from bk_spark.log.stored.tier_records import LedgerContent

LEAVES = (
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(10, 2),
)
CASES = 60


def digest(batches: list[pa.RecordBatch]) -> LedgerContent:
    found = LedgerDigest()
    for batch in batches:
        found.add(batch)
    return found.content()


def kind(chance: random.Random, levels: int = 3) -> pa.DataType:
    if levels and chance.random() < 0.35:
        inner = [kind(chance, levels - 1) for _ in range(chance.randint(1, 3))]
        return chance.choice(
            [
                pa.list_(pa.field("element", inner[0])),
                pa.map_(pa.string(), pa.field("value", inner[0])),
                pa.struct([pa.field(name, one) for name, one in zip("abc", inner, strict=False)]),
            ]
        )
    return chance.choice(LEAVES)


def value(chance: random.Random, of: pa.DataType, nulls: float) -> Any:
    if chance.random() < nulls:
        return None
    if pa.types.is_list(of):
        return [value(chance, of.value_type, nulls) for _ in range(chance.randint(0, 3))]
    if pa.types.is_map(of):
        return [(f"k{n}", value(chance, of.item_type, nulls)) for n in range(chance.randint(0, 3))]
    if pa.types.is_struct(of):
        return {field.name: value(chance, field.type, nulls) for field in of}
    if pa.types.is_floating(of):
        return chance.choice([0.0, -0.0, 1.5, float("nan")])
    if pa.types.is_boolean(of):
        return chance.random() < 0.5
    if pa.types.is_string(of) or pa.types.is_binary(of):
        text = "x" * chance.randint(0, 2) + chance.choice("0123é")
        return text if pa.types.is_string(of) else text.encode()
    return Decimal(chance.randint(-999, 999)).scaleb(-2) if pa.types.is_decimal(of) else chance.randint(0, 100)


def pieces(chance: random.Random, rows: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    while sum(map(len, found)) < rows.num_rows:
        piece = rows.slice(sum(map(len, found)), chance.randint(1, 8))
        found += (piece.combine_chunks() if chance.random() < 0.5 else piece).to_batches()
    return found


@pytest.mark.parametrize("seed", range(CASES))
def test_it_stays_the_same_however_rows_are_cut_and_stored_and_changes_with_every_value(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [kind(chance) for _ in range(chance.randint(1, 4))]
    count, nulls = chance.randint(1, 40), chance.choice([0, 0.1, 0.5, 0.9])
    columns = [[value(chance, one, nulls) for _ in range(count)] for one in kinds]

    def table() -> pa.Table:
        arrays = [pa.array(column, one) for column, one in zip(columns, kinds, strict=True)]
        return pa.table(arrays, [f"c{n}" for n in range(len(kinds))])

    rows, file = table(), io.BytesIO()
    expected = digest(rows.to_batches())
    pq.write_table(rows, file, row_group_size=chance.randint(1, 10))
    assert digest(pieces(chance, rows)) == digest(pieces(chance, pq.ParquetFile(file).read())) == expected
    assert digest(rows.append_column("new", pa.nulls(count, pa.int32())).to_batches()) == expected
    changed, row = chance.randrange(len(kinds)), chance.randrange(count)
    columns[changed][row] = value(chance, kinds[changed], nulls)
    is_same = repr(table().to_pydict()) == repr(rows.to_pydict())
    assert (digest(table().to_batches()) == expected) == is_same


WIDER = (
    (pa.int8(), pa.int32()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(9, 2)),
)


@pytest.mark.parametrize(("narrow", "wide"), WIDER, ids=str)
def test_it_stays_the_same_in_every_type_that_iceberg_lets_a_column_become(narrow: pa.DataType, wide: pa.DataType) -> None:
    values = pa.array([1, None, -2, 100], pa.int16()).cast(pa.decimal128(7, 2) if pa.types.is_decimal(wide) else wide)

    def batch(column: pa.Array) -> pa.RecordBatch:
        return pa.record_batch([column, pa.StructArray.from_arrays([column], ["x"])], ["a", "b"])

    assert digest([batch(values.cast(narrow))]) == digest([batch(values.cast(wide))])


def test_it_changes_with_the_order_of_rows_and_with_the_names_of_columns() -> None:
    one, two = pa.record_batch([pa.array([1])], ["a"]), pa.record_batch([pa.array([2])], ["a"])
    assert digest([one, two]) != digest([two, one])
    assert digest([one]) != digest([one.rename_columns(["b"])])
    assert digest([]) != digest([one])


def test_nulls_before_and_behind_all_values_count() -> None:
    nulls = pa.record_batch([pa.nulls(3, pa.int64())], ["a"])
    one = pa.record_batch([pa.array([1])], ["a"])
    assert len({digest(list(batches)).digest for batches in ((nulls, one), (one, nulls), (one,), (nulls, one, nulls))}) == 4


def test_runs_are_the_stretches_of_one_ledger() -> None:
    assert list(runs(pa.array([7, 7, 3, 7]).to_numpy())) == [(7, 0, 2), (3, 2, 3), (7, 3, 4)]
    assert list(runs(pa.array([], pa.int64()).to_numpy())) == []
