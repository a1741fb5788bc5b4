"""Logs with a tier, as stock engines read their tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from benchmarks.speed.measure import SkippedError
from bk_spark import BookKeeper, Tier
from bk_spark.lake.tier_log import TierReport
from bk_spark.log.log_handle import Log
from tests.interop.apache import IS_ALL
from tests.interop.same_rows import of_log, of_table
from tests.interop.stock_spark import FRESH, StockSpark, of_sqlite, stock_spark

WITH_SPARK = pytest.mark.skipif(not IS_ALL, reason="make interop: a Spark of its own, and 350 MB from Maven")
CATALOG = "lake/_catalog.db"
"""Below the folder of a test. That of the table is ``lake``."""


@dataclass(frozen=True)
class Lake:
    """A log whose ledgers leave bookies as soon as they are tiered. ``name`` is that of its catalog, too."""

    name: str
    folder: Path
    client: BookKeeper
    log: Log
    tier: Tier

    def run(self) -> TierReport:
        return self.client.tier_log(self.log.name)

    def table(self) -> Table:
        """Stock pyiceberg's."""
        properties = {key: one for key, one in self.tier.catalog.items() if key != "name"}
        return load_catalog(self.name, **properties).load_table(self.tier.table)

    def rows(self) -> list[str]:
        return of_log(self.log.read_rows().read_all())

    def as_read_by(self, engine: Engine) -> list[str]:
        return of_table(engine(self), self.log.schema.names)


Engine = Callable[[Lake], pa.Table]
"""All rows and columns of the table."""


def by_pyiceberg(lake: Lake) -> pa.Table:
    return lake.table().scan().to_arrow()


def by_polars(lake: Lake) -> pa.Table:
    return polars.scan_iceberg(lake.table(), reader_override="native").collect().to_arrow()


def by_spark(spark: StockSpark) -> Engine:
    return lambda lake: spark.rows(f"SELECT * FROM {known_to(spark, lake)}")


def known_to(spark: StockSpark, lake: Lake) -> str:
    """What Spark calls the table."""
    given = lake.tier.catalog
    is_rest = given.get("type") == "rest"
    spark.add_catalog(
        lake.name, {"type": "rest", "uri": given["uri"], **FRESH} if is_rest else of_sqlite(lake.folder / CATALOG)
    )
    return f"{lake.name}.{lake.tier.table}"


@contextmanager
def spark_or_skip(directory: Path) -> Iterator[StockSpark]:
    try:
        with stock_spark(directory) as spark:
            yield spark
    except SkippedError as reason:
        pytest.skip(f"a stock Spark is not to be had: {reason}")


def lake_of(client: BookKeeper, folder: Path) -> Lake:
    """A log without rows. Its tier is not set yet; its catalog is a file of SQLite."""
    name = f"lake_{uuid.uuid4().hex}"
    catalog = {"type": "sql", "uri": f"sqlite:///{folder / CATALOG}", "name": name}
    (folder / CATALOG).parent.mkdir(exist_ok=True)
    tier = Tier(f"file://{folder}/lake", f"shop.{name}", catalog, keep_on_bookies_s=0)
    return Lake(name, folder, client, client.open_log(name, create=True), tier)


def through(lake: Lake, catalog: dict[str, str]) -> Lake:
    """The log with another catalog."""
    return replace(lake, tier=replace(lake.tier, catalog={**catalog, "name": lake.name}))
