"""An auditor's passes over all ledgers, and what becomes of the marks."""

from __future__ import annotations

from benchmarks.scale.made_cluster import LEDGERS
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation
from benchmarks.scale.operations.clients import ledgers
from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.cluster import look_at_cluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.ledger_audit import LedgerAudit, RackAudit


@operation("an auditor's pass", ledgers, grows=[""], needs=[LEDGERS])
def auditor_pass(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        context = client.context
        audit = LedgerAudit(context, UnderReplication(context.store, context.znodes))
        racks = context.submit(context.rack_map()).result()
        with meter.running():
            found = audit.mark_lost(lambda: frozenset(), RackAudit(racks, 0))
        assert found.is_complete, "nobody ended it"
        assert found.ledgers >= site.ledgers


@operation("a lost bookie's ledgers are marked", ledgers, grows=["mark", "mark again", "read"], needs=[LEDGERS])
def mark_lost(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        marks = UnderReplication(client.metadata_store, client.znodes)
        audit = LedgerAudit(client.context, marks)
        with meter.running("mark"):
            found = audit.mark_lost(lambda: frozenset({site.lost}))
        with meter.running("mark again"):
            again = audit.mark_lost(lambda: frozenset({site.lost}))
        assert found.marked == again.marked > site.size.held // 2
        with meter.running("count"):
            assert marks.count() == found.marked
        with meter.running("dashboard"):
            look_at_cluster(client)
        with meter.running("read"):
            assert sum(1 for _ in marks.marks()) == found.marked
