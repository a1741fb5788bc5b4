"""What a client and an operator do first."""

from __future__ import annotations

from benchmarks.scale.made_cluster import LEDGERS, LOGS
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation, run_command
from benchmarks.scale.size import Size
from bk_spark.bookkeeper import BookKeeper

TIMES = 20
_ALL = (LEDGERS, LOGS)


def ledgers(size: Size) -> int:
    return size.ledgers


@operation("open a client", ledgers, needs=_ALL)
def open_client(site: Site, meter: Meter) -> None:
    BookKeeper(site.uri).close()
    for _ in range(TIMES):
        with meter.running():
            client = BookKeeper(site.uri)
        client.close()


@operation("create a ledger", ledgers, needs=_ALL)
def create_ledger(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        client.create_ledger().close()
        for _ in range(TIMES):
            with meter.running():
                writer = client.create_ledger()
            writer.close()


@operation("ledger list", ledgers, grows=[""], needs=_ALL)
def ledger_list(site: Site, meter: Meter) -> None:
    with meter.running():
        run_command("ledger", "list", "--json", uri=site.uri)
    with meter.running("one page"):
        run_command("ledger", "list", "--json", "--first", str(site.ledgers // 2), "--limit", "100", uri=site.uri)


@operation("doctor", ledgers, needs=_ALL)
def doctor(site: Site, meter: Meter) -> None:
    with meter.running():
        run_command("doctor", uri=site.uri)
