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
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.config import LedgerOptions
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL, LogPaths
from bk_spark.log.stored.values import (
    JOB_TAG,
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    JobState,
    LogVersion,
    Page,
    Totals,
)
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata, new_ledger
from bk_spark.metadata.store import Create, MetadataStore, SetValue, StoreChange
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect

PER_COMMIT = 10
"""Ledgers of one commit, as of a streaming sink with ten partitions."""
ENTRIES, BYTES = 10, 10_000
"""Of each ledger, by its metadata."""
SNAPSHOTS = 10
TIME_MS = 1_700_000_000_000
TRANSACTION_BYTES = 100_000
"""ZooKeeper keeps the last 500 transactions in memory."""
ENSEMBLE = ("bookie-1", "bookie-2", "bookie-3")


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
        self._paths: LogPaths = cluster.names.paths(self.uid)
        ids = cluster.new_ids(ledgers)
        self._listing = [_committed(one) for one in ids]
        self._write(self._operations(ids))
        self._write_head(ledgers // PER_COMMIT)
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
        metadata = _closed(ledger_id, job.ledger_tags())
        self.cluster.ledgers.create(metadata, logs.jobs.creation_of_ledger(job, ledger_id), lambda failure: None)
        request = CommitRequest(CommitKind.APPEND, (_committed(ledger_id),))
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

    def _operations(self, ids: Sequence[int]) -> Iterator[tuple[str, list[StoreChange]]]:
        """For each commit the parent that must be there, and what it creates."""
        paths, znodes = self._paths, self.cluster.znodes
        for version in range(1, len(ids) // PER_COMMIT + 1):
            some = ids[(version - 1) * PER_COMMIT : version * PER_COMMIT]
            job_id = uuid.uuid4().hex
            job = paths.job(job_id)
            tags = {LOG_TAG: self.uid.encode(), JOB_TAG: job_id.encode()}
            yield paths.version_bucket(version), [Create(paths.version(version), self._version(version, job_id).encode())]
            state = JobState(None, self.uid, version).encode()
            page = Page(tuple(self._listing[(version - 1) * PER_COMMIT : version * PER_COMMIT]), ()).encode()
            yield paths.job_bucket(job_id), [Create(job.root, state), Create(job.pages), Create(job.page(0), page)]
            for one in some:
                path = znodes.ledger(one)
                yield path.rsplit("/", 1)[0], [Create(path, _closed(one, tags).encode())]

    def _version(self, version: int, job_id: str) -> LogVersion:
        total, added = _totals(version * PER_COMMIT), _totals(PER_COMMIT)
        return LogVersion(
            version=version,
            time_ms=TIME_MS,
            kind=CommitKind.APPEND,
            content=Content.ENTRIES,
            schema_id=None,
            base_version=0,
            application=None,
            job_id=job_id,
            pages=1,
            added=added,
            removed=Totals(),
            total=total,
            replaced_version=0,
            end_row=total.rows,
            epoch=0,
        )

    def _write(self, changes: Iterator[tuple[str, list[StoreChange]]]) -> None:
        store, parents, waiting, nbytes = self.cluster.store, set[str](), list[StoreChange](), 0
        for parent, some in changes:
            if parent not in parents:
                parents.add(parent)
                store.ensure_path(parent)
            waiting += some
            nbytes += sum(len(one.path) + len(one.value) + 50 for one in some if isinstance(one, Create))
            if nbytes > TRANSACTION_BYTES:
                store.transaction(waiting)
                waiting, nbytes = [], 0
        store.transaction(waiting)

    def _write_head(self, version: int) -> None:
        total = _totals(version * PER_COMMIT)
        head = Head(self.name, version, TIME_MS, Content.ENTRIES, total=total, end_row=total.rows)
        stored = self.cluster.store.get(self._paths.head)
        self.cluster.store.transaction([SetValue(self._paths.head, head.encode(), stored.version)])


def _no_recovery(ledger_id: int) -> LedgerMetadata:
    raise AssertionError(f"ledger {ledger_id} was never open")


def _committed(ledger_id: int) -> CommittedLedger:
    return CommittedLedger(ledger_id, ENTRIES - 1, BYTES, ENTRIES)


def _closed(ledger_id: int, tags: dict[str, bytes]) -> LedgerMetadata:
    options = LedgerOptions(custom_metadata=tags)
    return new_ledger(ledger_id, options, ENSEMBLE, created_ms=TIME_MS, creator_token=ledger_id).closed_at(ENTRIES - 1, BYTES)


def _totals(ledgers: int) -> Totals:
    return Totals(ledgers, ledgers * ENTRIES, ledgers * BYTES)


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
