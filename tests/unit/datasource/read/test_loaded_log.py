"""The user's condition on the columns of a loaded log."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from bk_spark.datasource.options import parse_options
from bk_spark.datasource.read.loaded_log import LoadedLog, filter_of
from bk_spark.errors import ConfigError

_LOWER = StringType("UTF8_LCASE")
_SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("plain", StringType()),
        StructField("name", _LOWER),
        StructField("deep", StructType([StructField("plain", StringType()), StructField("name", _LOWER)])),
    ]
)
LOG = LoadedLog("orders", "u", 1, "rows", _SCHEMA.json()).stored


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("name = 'a'", "name"),
        ("id = 1 OR name LIKE 'a%'", "name"),
        ("deep.name NOT IN ('a')", "deep.name"),
        ("NOT (deep.plain = 'a' AND deep.NAME > 'b')", "deep.name"),
    ],
)
def test_strings_of_a_collation_are_not_compared(text: str, column: str) -> None:
    with pytest.raises(ConfigError, match=rf"column '{column}' has a collation of its own: use DataFrame.where\(\)"):
        filter_of(parse_options({"metadata": "zk://h:1/l", "path": "orders", "where": text}), LOG)


@pytest.mark.parametrize("text", ["name IS NULL", "deep.name IS NOT NULL AND deep.plain = 'a'", "plain LIKE 'a%'"])
def test_strings_of_a_collation_are_tested_for_nulls_and_others_are_compared(text: str) -> None:
    assert filter_of(parse_options({"metadata": "zk://h:1/l", "path": "orders", "where": text}), LOG) is not None
