"""A Spark with Iceberg's runtime, from Maven: the newest that Iceberg has one for. Nothing of ours is in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.bookkeeper_cluster import Peer, java_command

_HERE = Path(__file__).resolve().parent

_OPENED = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
    "sun.util.calendar",
)
"""As Spark's own start scripts have it."""

_JAVA = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    *("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
)

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


FRESH = {"cache-enabled": "false"}
"""Otherwise a session sees a table for half a minute as it was."""


class StockSparkError(Exception):
    """What Spark said."""


class StockSpark:
    """One session; its commands are in StockSpark.java."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        self._peer = peer
        self._results = (directory / f"result-{number}" for number in itertools.count())

    def add_catalog(self, name: str, properties: Mapping[str, str]) -> None:
        """From now on tables are known as ``name.namespace.table``."""
        self.run(f"SET spark.sql.catalog.{name}=org.apache.iceberg.spark.SparkCatalog")
        for key, value in properties.items():
            self.run(f"SET `spark.sql.catalog.{name}.{key}`=`{value}`")

    def run(self, statement: str) -> None:
        self._ask("run", statement)

    def rows(self, query: str) -> pa.Table:
        result = next(self._results)
        self._ask("save", result, query)
        return pq.read_table(result)

    def _ask(self, *command: object) -> None:
        answer = self._peer.ask(*command)
        if "error" in answer:
            raise StockSparkError(answer["error"])


@contextmanager
def stock_spark(directory: Path) -> Iterator[StockSpark]:
    """Raises SkippedError where the jars are not to be had."""
    java = java_command(_JAVA, _HERE / "stock-spark-pom.xml")
    settings = [f"{key}={value}" for key, value in {**_SETTINGS, "spark.local.dir": str(directory)}.items()]
    with closing(Peer([*java, str(_HERE / "StockSpark.java"), *settings], directory / "spark.log")) as peer:
        yield StockSpark(peer, directory)


def of_sqlite(file: Path) -> dict[str, str]:
    """The properties of a catalog that is a file of SQLite."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": os.fspath(file.parent), **FRESH}
