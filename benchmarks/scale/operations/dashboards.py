"""What the dashboard reads, page by page."""

from __future__ import annotations

from benchmarks.scale.made_cluster import LEDGERS, LOGS
from benchmarks.scale.made_logs import LONG_LOG
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation
from benchmarks.scale.operations.clients import ledgers
from benchmarks.scale.operations.commits import Committer
from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.cluster import look_at_cluster
from bk_spark.dashboard.ledgers import ledger_page, one_ledger
from bk_spark.dashboard.logs import LogView, log_page
from bk_spark.dashboard.tiers import TierView

PAGE = 100
GROWS = ("logs", "the long log")
"""All names of logs are read for a page of them, and all of a log's ledgers for the first look at it."""


@operation("dashboard", ledgers, grows=GROWS, needs=(LEDGERS, LOGS))
def dashboard(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        tiers = TierView(client.logs)
        logs, middle = LogView(client, tiers), site.ledgers // 2
        with meter.running("cluster"):
            look_at_cluster(client)
        with meter.running("ledgers"):
            ledger_page(client, middle, PAGE, "")
        with meter.running("open ledgers"):
            ledger_page(client, -1, PAGE, "OPEN")
        with meter.running("a ledger"):
            one_ledger(client, middle, {})
        with meter.running("logs"):
            log_page(client, tiers, "", PAGE)
        with meter.running("the long log"):
            logs.look_at(LONG_LOG)
        Committer(client, site.bookies, LONG_LOG).commit()
        with meter.running("the long log after a commit"):
            logs.look_at(LONG_LOG)
