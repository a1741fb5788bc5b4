"""Logs with a tier in a directory, and their tables as another program reads them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from bk_spark import BookKeeper, NoSuchLogError, Tier
from bk_spark.lake.tier_log import TierReport
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log


@dataclass(frozen=True)
class TieredLog:
    """A log whose ledgers leave bookies as soon as they are tiered."""

    uri: str
    client: BookKeeper
    log: Log
    tier: Tier

    def run(self) -> TierReport:
        return self.client.tier_log(self.log.name)

    def catalog(self) -> Catalog:
        """Stock pyiceberg's."""
        location = self.tier.location.removeprefix("file://")
        return load_catalog("default", type="sql", uri=f"sqlite:///{location}/_catalog.db")

    def table(self) -> Table:
        return self.catalog().load_table(self.tier.table)

    def in_table(self) -> pa.Table:
        """The rows as the table has them, in the log's order, without their places."""
        found = self.table().scan().to_arrow()
        place = ["_ledger_id", "_entry_id", "_row"]
        return found.sort_by([(name, "ascending") for name in place]).drop_columns(place)

    def on_bookies(self) -> int:
        """How many of the ledgers that the log lists bookies have."""
        return len(self.client.existing_ledgers([one.ledger_id for one in self.log.ledgers()]))


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def tiered(cluster: LocalCluster, client: BookKeeper, tmp_path: Path) -> Iterator[TieredLog]:
    """An empty log. Its tier is set by the test. It goes with the test, as others tier all logs of the cluster."""
    name = f"orders-{uuid.uuid4().hex}"
    log = client.open_log(name, create=True)
    yield TieredLog(cluster.metadata_uri, client, log, Tier(f"file://{tmp_path}/lake", "shop.orders", keep_on_bookies_s=0))
    with suppress(NoSuchLogError):
        client.open_log(name).delete()
