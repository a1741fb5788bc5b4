"""Spark with ``embedded:DIR``: nothing to start before the first row."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bk_spark import BookKeeper
from tests.spark.conftest import Logs


@pytest.mark.nightly(
    held_by="tests/spark/test_examples.py::test_the_readme_has_a_short_program_each_for_batch_stream_entries_and_rows,"
    "tests/cluster/embedded"
)
def test_rows_are_written_and_read_where_nothing_was_started(spark: SparkSession, tmp_path: Path) -> None:
    logs = Logs(spark, f"embedded:{tmp_path}/data")
    logs.write(spark.range(1000), "numbers")
    logs.write(spark.range(1000, 2000), "numbers")
    assert logs.read("numbers").count() == 2000
    assert logs.read("numbers", where="id >= 1990").count() == 10
    with BookKeeper(logs.uri) as bookkeeper:
        assert bookkeeper.list_logs() == ["numbers"]
