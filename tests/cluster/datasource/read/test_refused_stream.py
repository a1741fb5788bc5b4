"""Streams that are refused on a real cluster."""

from __future__ import annotations

from bk_spark.datasource.read.stream_reader import RefusedStream
from tests.cluster.datasource.direct import Direct
from tests.unit.datasource.batches import NUMBERS


def test_making_a_stream_raises_nothing_of_ours(direct: Direct) -> None:
    """What ``streamReader`` raises, Spark covers with an error of its own."""
    reader = direct.source("nobody").streamReader(NUMBERS)
    assert isinstance(reader, RefusedStream)
