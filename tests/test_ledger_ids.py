"""Ledger ids are never given twice, and one that is taken now is above all others (docs/rules.md, storage rule 11)."""

from __future__ import annotations

from bk_spark.ledger_ids import highest_issued_id, new_ledger_id
from bk_spark.registration import initialise_cluster
from bk_spark.znodes import Znodes
from bk_spark.zookeeper import ZooKeeperStore, connect


def test_the_highest_issued_id_is_above_all_that_any_session_got_before(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes
) -> None:
    """Real ZooKeeper: that the znodes of earlier ids are deleted, and by whom, does not matter."""
    initialise_cluster(store, znodes)
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as other:
        issued = [new_ledger_id(session, znodes) for session in (store, other, other, store, other)]
        assert highest_issued_id(store, znodes) > max(issued)
    assert len(set(issued)) == 5
    assert store.children(znodes.id_generator) == []


def test_an_id_issued_later_is_above_the_highest_of_before(store: ZooKeeperStore, znodes: Znodes) -> None:
    initialise_cluster(store, znodes)
    highest = highest_issued_id(store, znodes)
    assert new_ledger_id(store, znodes) > highest
