"""A stream over all logs whose names fit a pattern."""

from __future__ import annotations

import math
import time

from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.scale.made_cluster import LOGS
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation
from benchmarks.scale.operations.commits import Committer
from benchmarks.scale.operations.waiting import until
from benchmarks.scale.size import Size
from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.datasource.read.several_reader import SeveralReader
from bk_spark.datasource.source import BookKeeperDataSource

IDLE_S = 5.0
ASKS_S = 0.012
"""How often Spark asks an idle query for the latest offset."""


def followed_logs(size: Size) -> int:
    return size.followed_logs


@operation(
    "streams over a pattern of logs, 1,000 to a stream", followed_logs, grows=["load", "begin", "idle", "news"], needs=[LOGS]
)
def pattern_stream(site: Site, meter: Meter) -> None:
    streams = math.ceil(site.size.followed_logs / MAX_LOGS_READ)
    with meter.running("load"):
        readers = [_stream(site, f"followed-{number:02d}...") for number in range(streams)]
    with meter.running("begin"):
        starts = [reader.initialOffset() for reader in readers]
        for reader, start in zip(readers, starts, strict=True):
            assert reader.latestOffset(start, ReadAllAvailable()) == start
    with meter.running("idle"):
        ends_s = time.monotonic() + IDLE_S
        while time.monotonic() < ends_s:
            for reader, start in zip(readers, starts, strict=True):
                reader.latestOffset(start, ReadAllAvailable())
            time.sleep(ASKS_S)
    with BookKeeper(site.uri) as client:
        Committer(client, site.bookies, "followed-00001").commit()
    with meter.running("news"):
        until(lambda: readers[0].latestOffset(starts[0], ReadAllAvailable()) != starts[0])
        end = readers[0].latestOffset(starts[0], ReadAllAvailable())
        assert len(readers[0].partitions(starts[0], end)) == 1
    for reader in readers:
        reader.stop()


def _stream(site: Site, pattern: str) -> SeveralReader:
    source = BookKeeperDataSource({"metadata": site.uri, "logsPattern": pattern, "content": "entries"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, SeveralReader)
    return reader
