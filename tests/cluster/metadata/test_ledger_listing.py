"""Listings of ledgers that a real ZooKeeper answers in a way of its own."""

from __future__ import annotations

from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.store import Create
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect


def test_a_flat_root_above_jute_maxbuffer_is_listed(zookeeper_server: LocalZooKeeper, metadata_uri: str) -> None:
    """ZooKeeper bounds by it what it is sent, 1 MiB; only Apache's Java client also bounds what it gets."""
    flat = Znodes(parse_uri(metadata_uri)[1], LedgerLayout.FLAT)
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        store.ensure_path(flat.root)
        ids = range(72_000)
        for start in range(0, len(ids), 4_000):
            store.transaction([Create(flat.ledger(ledger_id)) for ledger_id in ids[start : start + 4_000]])
        assert sum(len(name) + 4 for name in store.children(flat.root)) > 1 << 20
        assert sum(len(page) for page in ledger_pages(store, flat)) == len(ids)
