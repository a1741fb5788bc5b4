"""Does a log of 100,000 ledgers commit, and plan a micro-batch, in the time of one of 10?

Logs of 10, 1,000 and 100,000 ledgers, ten to a commit, on a real ZooKeeper. They are made of metadata alone, in the exact
format and in large transactions: no bookie, no entry. Then round after round each of them commits one ledger more and plans
the micro-batch that has it, alternating; medians. Also: a whole read (a snapshot, which does grow with the log), and the
checkpoint that every thousandth commit writes.

Fails in full size if the log of 100,000 plans outside of ±20 % of the time of the one of 10, or commits in more than 1.2 times.

    python benchmarks/log_planning.py [--small]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.scale.made_ledgers import ENTRIES, TIME_MS, listed, made_ledger
from benchmarks.scale.made_logs import LogMaker, appends
from benchmarks.scale.size import BOOKIES, PER_COMMIT
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL
from bk_spark.log.stored.values import CommitKind
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect

SNAPSHOTS = 10
NAMED = tuple(f"bookie-{number}" for number in range(1, BOOKIES + 1))


@dataclass(slots=True)
class Times:
    """Seconds, one for each round."""

    commit: list[float] = field(default_factory=list)
    plan: list[float] = field(default_factory=list)
    snapshot: list[float] = field(default_factory=list)


class Cluster:
    """The metadata store, and ids for made-up ledgers."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self.store = store
        self.znodes = znodes
        self.names = LogNames(store, znodes)
        self.ledgers = LedgerStore(store, znodes)
        self.logs = LogStore(store, znodes, lambda: TIME_MS, recover_ledger=_no_recovery)
        self._next_id = 0

    def new_ids(self, count: int) -> range:
        self._next_id += count
        return range(self._next_id - count, self._next_id)


class MadeLog:
    """A log of ``ledgers`` ledgers. The constructor writes what that many commits would have left."""

    def __init__(self, cluster: Cluster, ledgers: int) -> None:
        self.cluster = cluster
        self.name = f"log-{ledgers}"
        self.uid = cluster.logs.open(self.name, create=True)
        self.times = Times()
        ids = cluster.new_ids(ledgers)
        maker = LogMaker(cluster.logs, cluster.znodes, NAMED)
        maker.write_head(self.name, self.uid, maker.write_commits(self.uid, appends(ids, self.name)))
        for version in range(CHECKPOINT_INTERVAL, ledgers // PER_COMMIT + 1, CHECKPOINT_INTERVAL):
            cluster.logs.write_checkpoint(self.name, self.uid, version)
        self._follower = LogFollower(cluster.logs.reader, self.name, self.uid, "fail", cluster.ledgers.existing)
        head = cluster.logs.names.head(self.name, self.uid)
        self._position = self._follower.newest(head, {}, behind(head.version - 1)).position

    def commit(self) -> None:
        """One ledger more; what its writing costs is not counted."""
        logs, (ledger_id,) = self.cluster.logs, self.cluster.new_ids(1)
        job = logs.jobs.begin(self.name)
        logs.jobs.ensure(job)
        metadata = made_ledger(NAMED, ledger_id, job.ledger_tags())
        self.cluster.ledgers.create(metadata, logs.jobs.creation_of_ledger(job, ledger_id), lambda failure: None)
        request = CommitRequest(CommitKind.APPEND, (listed(ledger_id),))
        self.times.commit.append(_seconds(lambda: logs.commit(job, request)))
        logs.jobs.finish(job, [ledger_id])

    def plan(self) -> None:
        """What a stream does that stands at the end: it learns how far it can read, and plans what the last commit brought."""

        def planned() -> StreamPosition:
            head = self.cluster.logs.names.head(self.name, self.uid)
            end = self._follower.newest(head, {}, self._position).position
            pieces = list(self._follower.stretches(self._position, end, head, fail_on_data_loss=True))
            assert [piece.rows for piece in pieces] == [ENTRIES]
            return end

        started = time.perf_counter()
        self._position = planned()
        self.times.plan.append(time.perf_counter() - started)

    def snapshot(self) -> None:
        self.times.snapshot.append(_seconds(lambda: self.cluster.logs.reader.snapshot(self.name)))

    def checkpoint_seconds(self) -> float:
        """What the commit of a thousandth version adds: the listing is read, and written."""
        logs = self.cluster.logs
        version = logs.names.head(self.name, self.uid).version
        return _seconds(lambda: logs.write_checkpoint(self.name, self.uid, version))


def _no_recovery(ledger_id: int) -> LedgerMetadata:
    raise AssertionError(f"ledger {ledger_id} was never open")


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(sizes: Sequence[int], rounds: int) -> list[MadeLog]:
    with LocalCluster(bookies=0) as local:
        uri = local.metadata_uri
        with connect(uri, connect_timeout_s=10.0, session_timeout_s=30.0) as store:
            cluster = Cluster(store, Znodes(parse_uri(uri)[1]))
            made = []
            for size in sizes:
                started = time.perf_counter()
                made.append(MadeLog(cluster, size))
                print(f"a log of {size:>7,} ledgers made in {time.perf_counter() - started:.1f} s", flush=True)
            for number in range(rounds):
                for log in made if number % 2 else reversed(made):
                    log.commit()
                    log.plan()
            for _ in range(min(rounds, SNAPSHOTS)):  # apart, as after seconds of work the scheduler makes a process wait
                for log in made:
                    log.snapshot()
            print(f"the checkpoint of the largest: {made[-1].checkpoint_seconds() * 1000:.0f} ms, with every thousandth commit")
            return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="logs of 10, 100 and 1,000 ledgers, and few rounds")
    args = parser.parse_args()
    sizes, rounds = ((10, 100, 1000), 5) if args.small else ((10, 1000, 100_000), 60)
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}; {rounds} rounds, medians")
    made = measure(sizes, rounds)
    medians = {}
    for size, log in zip(sizes, made, strict=True):
        medians[size] = [statistics.median(some) for some in (log.times.commit, log.times.plan, log.times.snapshot)]
        commit, plan, snapshot = (f"{one * 1000:7.2f} ms" for one in medians[size])
        print(f"{size:>9,} ledgers: commit {commit}   plan a micro-batch {plan}   snapshot of all {snapshot}")
    commit_ratio, plan_ratio = (medians[sizes[-1]][place] / medians[sizes[0]][place] for place in (0, 1))
    print(f"{sizes[-1]:,} against {sizes[0]:,} ledgers: commit {commit_ratio:.2f}, plan {plan_ratio:.2f}")
    holds = commit_ratio <= 1.2 and 0.8 <= plan_ratio <= 1.2
    return 0 if holds or args.small else 1


if __name__ == "__main__":
    sys.exit(main())
