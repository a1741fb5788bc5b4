"""An audit of very many ledgers."""

from __future__ import annotations

import time

from bk_spark.replication.auditor_znodes import is_requested, request_audit
from tests.cluster.client.cluster_of_znodes import ClusterOfZnodes, eventually
from tests.cluster.replication.test_auditor import PATIENT, cluster, elected, no_polling

__all__ = ["cluster", "no_polling"]


def test_ten_thousand_ledgers_are_marked(cluster: ClusterOfZnodes) -> None:
    cluster.create_ledgers(dict.fromkeys(range(10, 10010), ("b1", "b2")))
    with elected(cluster, PATIENT):
        cluster.go("b1")
        began_s = time.monotonic()
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: not is_requested(cluster.store, cluster.znodes), 60.0)
        took_s = time.monotonic() - began_s
        print(f"10,001 ledgers marked in {took_s:.1f} s")
        assert cluster.marks.count() == 10_001
