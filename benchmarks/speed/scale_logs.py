"""Does a log of 100,000 ledgers commit, and plan a micro-batch, in the time of one of 10?

The logs are made of metadata alone and measured as ``benchmarks/log_planning.py`` does it; its first lines say how.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.log_planning import Cluster, MadeLog, Times
from benchmarks.speed.measure import Claim, Result, Sample, Setting, alternate, claim, workload
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect

SIZES, SMALL_SIZES = (10, 1_000, 100_000), (10, 100)
COMMITS, SMALL_COMMITS = 20, 2
"""Of one turn, each followed by the plan of what it brought."""


class LogOfSize:
    """A log that grows by one ledger with each commit."""

    def __init__(self, cluster: Cluster, ledgers: int, commits: int) -> None:
        self.name = f"{ledgers:,} ledgers"
        self._log = MadeLog(cluster, ledgers)
        self._commits = commits

    def run(self, turn: int) -> Sample:
        self._log.times = times = Times()
        for _ in range(self._commits):
            self._log.commit()
            self._log.plan()
        self._log.snapshot()
        figures = {
            "commit_ms": statistics.median(times.commit) * 1000,
            "plan_ms": statistics.median(times.plan) * 1000,
            "snapshot_ms": times.snapshot[0] * 1000,
        }
        return Sample(sum(times.commit) + sum(times.plan), self._commits, 0, figures)


def _against_smallest(what: str, figure: str, samples: Mapping[str, Sequence[Sample]]) -> Claim:
    """The largest log against the smallest."""
    (smallest, theirs), *_, (largest, ours) = samples.items()
    pair = ([one.figures[figure] for one in ours], [one.figures[figure] for one in theirs])
    return claim(f"{what}, log of {largest} against one of {smallest}", pair[0], pair[1], 1.2, at_least=False)


@workload("scale_logs", "commit and plan on logs of 10, 1,000 and 100,000 ledgers")
def scale_logs(setting: Setting) -> Result:
    sizes, commits = setting.choose(SIZES, SMALL_SIZES), setting.choose(COMMITS, SMALL_COMMITS)
    with LocalCluster(bookies=0, data_dir=setting.directory / "cluster") as local:
        uri = local.metadata_uri
        with connect(uri, connect_timeout_s=10.0, session_timeout_s=30.0) as store:
            cluster = Cluster(store, Znodes(parse_uri(uri)[1]))
            logs = [LogOfSize(cluster, size, commits) for size in sizes]
            samples = alternate(logs, setting.runs)
    claims = [
        _against_smallest("commit time", "commit_ms", samples),
        _against_smallest("time to plan a micro-batch", "plan_ms", samples),
    ]
    notes = [
        "Rows are commits of one ledger, each planned as the next micro-batch of a stream; figures are medians of a turn.",
        "A snapshot lists all ledgers of the log for a whole read: it does grow with the log.",
    ]
    return Result("scale_logs", "commits of one ledger on logs of metadata alone", samples, claims, notes)
