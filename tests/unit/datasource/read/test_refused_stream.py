"""A stream that cannot be read says why at whatever Spark asks first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from bk_spark.datasource.read.stream_reader import RefusedStream
from bk_spark.errors import ConfigError

PROBLEM = ConfigError("option 'x'", 1, "leave it out")
ASKED: list[Callable[[RefusedStream], object]] = [
    lambda reader: reader.getDefaultReadLimit(),
    lambda reader: reader.prepareForTriggerAvailableNow(),
    lambda reader: reader.initialOffset(),
    lambda reader: reader.latestOffset({}, ReadAllAvailable()),
    lambda reader: reader.partitions({}, {}),
    lambda reader: reader.read(InputPartition(None)),
]


@pytest.mark.parametrize("ask", ASKED)
def test_whatever_is_asked_first_raises_the_problem(ask) -> None:
    with pytest.raises(ConfigError) as refused:
        ask(RefusedStream(PROBLEM))
    assert refused.value is PROBLEM


def test_spark_may_stop_it_and_takes_it_for_a_reader_of_every_trigger() -> None:
    reader = RefusedStream(PROBLEM)
    reader.stop()
    assert isinstance(reader, DataSourceStreamReader)
    assert isinstance(reader, SupportsTriggerAvailableNow)
