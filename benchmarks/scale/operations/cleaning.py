"""What deletes: the sweep of orphans and the vacuum."""

from __future__ import annotations

from benchmarks.scale.made_cluster import LEDGERS, LOGS, ORPHANS
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation, run_command
from benchmarks.scale.size import Size


def logs(size: Size) -> int:
    return size.logs


@operation("orphans sweep", logs, grows=["list", "sweep"], needs=(LEDGERS, LOGS, ORPHANS))
def orphans_sweep(site: Site, meter: Meter) -> None:
    """Whatever its age: nothing is at work meanwhile."""
    with meter.running("list"):
        run_command("orphans", "list", "--older-than-s", "0", uri=site.uri)
    with meter.running("sweep"):
        run_command("orphans", "sweep", "--older-than-s", "0", uri=site.uri)


@operation("vacuum of all logs", logs, grows=["", "again"], needs=(LEDGERS, LOGS))
def vacuum_all(site: Site, meter: Meter) -> None:
    with meter.running():
        run_command("log", "vacuum", "--all", uri=site.uri)
    with meter.running("again"):
        run_command("log", "vacuum", "--all", uri=site.uri)
