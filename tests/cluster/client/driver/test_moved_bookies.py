"""Bookies that come back on other ports, while other bookies answer on the ports that they had. Ref: protocol rule 67."""

from __future__ import annotations

import time

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookieUnavailableError
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.registration import BookieAddress, register
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, bookies_of, payloads


def test_a_bookie_is_reached_on_its_new_port_though_another_bookie_answers_on_its_old_one(cluster: LocalCluster) -> None:
    """As after a SIGKILL: the dead bookie's registration lasts until its session ends, and its port is taken meanwhile."""
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        with client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
            writer.append(b"a")
        (moved,) = bookies_of(cluster, writer.metadata)
        other = next(bookie for bookie in cluster.bookies if bookie is not moved)
        moved.stop()
        other.stop()
        moved.port, other.port = other.port, moved.port
        try:
            other.start()
            register(client.context.store, client.context.znodes, BookieAddress(moved.bookie_id, "127.0.0.1", other.port))
            assert _read(client, writer.ledger_id) == "WRONG_BOOKIE"
        finally:
            moved.start()
        deadline_s = time.monotonic() + DEADLINE_S
        while (found := _read(client, writer.ledger_id)) != "a":
            assert time.monotonic() < deadline_s, found


def _read(client: BookKeeper, ledger_id: int) -> str:
    try:
        return payloads(client.open_ledger(ledger_id))[0].decode()
    except BookieUnavailableError as problem:
        return "WRONG_BOOKIE" if "WRONG_BOOKIE" in str(problem) else str(problem)
