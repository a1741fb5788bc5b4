"""Audits of all ledgers' metadata on a real ZooKeeper: where they begin, and what they mark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.config import ClientConfig
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.replication.ledger_audit import LedgerAudit
from tests.cluster.client.cluster_of_znodes import ClusterOfZnodes

LOST = frozenset({"b2"})
MARKED = {0: ("b2",), 1: ("b2",)}


@pytest.fixture
def cluster(store: ZooKeeperStore, znodes: Znodes) -> ClusterOfZnodes:
    cluster = ClusterOfZnodes(store, znodes)
    cluster.create_ledgers({0: ("b1", "b2"), 1: ("b2", "b3"), 2: ("b3", "b4")})
    return cluster


@pytest.fixture
def audit(cluster: ClusterOfZnodes) -> Iterator[LedgerAudit]:
    """One that has seen all ledgers."""
    context = ClientContext(cluster.store, cluster.znodes, ClientConfig())
    audit = LedgerAudit(context, cluster.marks)
    assert audit.mark_lost(frozenset).is_complete
    yield audit
    context.close()


def test_ledgers_that_named_a_lost_bookie_at_the_last_audit_are_marked_before_all_are_read(
    cluster: ClusterOfZnodes, audit: LedgerAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked_before = []
    pages = LedgerAudit._pages

    def noted(self: LedgerAudit, after: int = -1) -> Iterator[list[int]]:
        marked_before.append(cluster.marked())
        return pages(self, after)

    monkeypatch.setattr(LedgerAudit, "_pages", noted)
    found = audit.mark_lost(lambda: LOST)
    assert marked_before == [MARKED]
    assert (found.is_complete, found.ledgers, found.marked) == (True, 3, 2)


def test_ledger_that_is_marked_first_gets_no_second_report_by_the_same_audit(
    cluster: ClusterOfZnodes, audit: LedgerAudit
) -> None:
    audit.mark_lost(lambda: LOST)
    assert [mark.version for mark in cluster.marks.marks()] == [0, 0]


def test_ledgers_that_are_new_since_the_last_audit_are_marked_and_those_that_changed_are_not(
    cluster: ClusterOfZnodes, audit: LedgerAudit
) -> None:
    cluster.create_ledgers({3: ("b1", "b2")})
    cluster.store.delete(cluster.znodes.ledger(0), ANY_VERSION)
    cluster.store.delete(cluster.znodes.ledger(1), ANY_VERSION)
    cluster.create_ledgers({1: ("b4", "b3")})
    found = audit.mark_lost(lambda: LOST)
    assert cluster.marked() == {3: ("b2",)}
    assert (found.ledgers, found.marked) == (3, 1)


def test_audit_that_is_ended_marks_nothing_more_and_the_next_one_begins_where_it_would_have(
    cluster: ClusterOfZnodes, audit: LedgerAudit
) -> None:
    answers = iter([LOST, None])
    assert not audit.mark_lost(lambda: next(answers)).is_complete
    assert cluster.marked() == {}
    answers = iter([LOST, LOST, None])
    assert audit.mark_lost(lambda: next(answers)).marked == 2
    assert cluster.marked() == MARKED
