"""Which columns a log's table has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.lake.columns import table_columns

PLACE = [pa.field(name, pa.int64()) for name in ("_ledger_id", "_entry_id", "_row")]


def test_columns_keep_their_names_and_get_types_that_iceberg_has() -> None:
    stored = pa.schema(
        [
            ("a", pa.int8()),
            ("nothing", pa.null()),
            ("t", pa.time64("ns")),
            ("s", pa.struct([("x", pa.int16()), ("y", pa.list_(pa.int8()))])),
            ("d", pa.decimal128(5, 2)),
        ]
    )
    assert table_columns("orders", stored) == pa.schema(
        [
            pa.field("a", pa.int32()),
            pa.field("t", pa.time64("us")),
            pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.field("element", pa.int32())))])),
            pa.field("d", pa.decimal128(5, 2)),
            *PLACE,
        ]
    )


VARIANT = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)])


@pytest.mark.parametrize("kind", [pa.duration("us"), VARIANT, pa.list_(pa.null()), pa.struct([]), pa.list_(VARIANT)], ids=str)
def test_a_type_that_iceberg_does_not_have_is_refused_with_the_columns_name(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column 'x.*cast it, or overwrite the log without it"):
        table_columns("orders", pa.schema([("x", kind)]))


@pytest.mark.parametrize("name", ["_row", "_ledger_id", "_entry_id", ""])
def test_a_column_with_the_name_of_a_place_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot have a column of this name"):
        table_columns("orders", pa.schema([(name, pa.int64())]))
