"""Our client beside Apache's Java client, both on the same three bookies of Apache's: adds, and reads of one ledger.

Then Spark on these bookies beside Spark on ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.peers.bookkeeper_client import IN_FLIGHT, READ_BATCH, READS_IN_FLIGHT, THEIRS_IN_FLIGHT, WARMUPS
from benchmarks.peers.bookkeeper_cluster import POM, BookKeeperCluster, bookkeeper_cluster
from benchmarks.peers.bookkeeper_runs import PeerRuns, Pool, append_batches, append_singly, check_content, pool, read_batches
from benchmarks.peers.fetch import jars
from benchmarks.speed.ledger_runs import Bench, Quorums
from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, claim, workload
from benchmarks.speed.spark_jobs import SparkJobs
from benchmarks.speed.spark_session import SUBJECTS, SparkTable, in_memory, session
from bk_spark.cli import main as command
from bk_spark.config import KIB

OURS, OURS_SINGLY, THEIRS = "our client, append_batch", "our client, append_async", "Java client, asyncAddEntry"
OUR_READ, THEIR_READ = "our client, read", "Java client, batchReadAsync"

NOTES = (
    "Three bookies of Apache BookKeeper 4.17.3 (DbLedgerStorage, the journal is synced before an add is acked) take turns "
    "with both clients: 3/3/2, CRC32C, entries that do not compress. Version 2 of the wire protocol for adds and batch "
    "reads on both sides. Both clients are warm.",
)


@contextmanager
def both_clients(setting: Setting, entries: Pool) -> Iterator[tuple[Bench, PeerRuns]]:
    jars(POM)  # so that nothing is started in vain where they are not to be had
    payloads = entries.write(setting.directory / "payloads")
    with (
        Bench(setting.directory, bookies=0) as bench,
        bookkeeper_cluster(bench.local, setting.directory / "apache") as cluster,
        cluster.client(payloads, entries.entry_bytes) as peer,
        bench.at(f"zk://{bench.local.zookeeper.address}/apache", cluster.bookies) as ours,
    ):
        yield ours, PeerRuns(cluster.bookies, peer)


def _register_adds(entry_bytes: int, size: str, full: int) -> None:
    name = f"apache_bookies_adds_{size.replace(' ', '')}"
    about = f"entries of {size} added to Apache's bookies, 3/3/2: our client, in batches and singly, and Apache's"

    @workload(name, about)
    def adds(setting: Setting) -> Result:
        entries, count = pool(entry_bytes, setting.seed), setting.choose(full, 2_000)
        with both_clients(setting, entries) as (ours, theirs):
            entrants = [
                Entrant(OURS, append_batches(ours, entries, setting.choose(2 * full, 2_000))),
                Entrant(OURS_SINGLY, append_singly(ours, entries, count, IN_FLIGHT)),
                Entrant(THEIRS, theirs.add(count, THEIRS_IN_FLIGHT)),
            ]
            samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
        rates = {who: [one.rows_per_s for one in found] for who, found in samples.items()}
        text = f"adds of {size} to Apache's bookies, entries/s of"
        claims = [
            claim(f"{text} append_async against asyncAddEntry", rates[OURS_SINGLY], rates[THEIRS], 1.5),
            claim(f"{text} append_batch against asyncAddEntry", rates[OURS], rates[THEIRS], 1.5),
        ]
        return Result(name, about, samples, claims, NOTES)


_register_adds(100, "100 B", 250_000)
_register_adds(KIB, "1 KiB", 100_000)

ABOUT_READS = "entries of 100 B read from a closed ledger on Apache's bookies: our client, and Apache's in batched reads"


@workload("apache_bookies_reads_100B", ABOUT_READS)
def reads(setting: Setting) -> Result:
    entries, count = pool(100, setting.seed), setting.choose(800_000, 10_000)
    with both_clients(setting, entries) as (ours, theirs):
        ledger = theirs.written_ledger(count, THEIRS_IN_FLIGHT)
        entrants = [
            Entrant(OUR_READ, read_batches(ours, ledger, 1)),
            Entrant(THEIR_READ, theirs.read(ledger, READ_BATCH, READS_IN_FLIGHT)),
        ]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
        check_content(ours, ledger, entries)
    rates = {who: [one.rows_per_s for one in found] for who, found in samples.items()}
    text = "reads of 100-byte entries from Apache's bookies, entries/s of read against batchReadAsync"
    return Result(
        "apache_bookies_reads_100B", ABOUT_READS, samples, [claim(text, rates[OUR_READ], rates[THEIR_READ], 1.0)], NOTES
    )


ABOUT_SPARK = "Spark writes and reads of entries of 100 B: on Apache's bookies, and on ours"


@workload("apache_bookies_spark_100B", ABOUT_SPARK)
def spark_jobs(setting: Setting) -> Result:
    subject, quorums, directory = SUBJECTS["100B"], Quorums(3, 3, 2), setting.directory / "apache"
    jars(POM)
    with (
        session() as spark,
        SparkJobs(spark, setting.directory, subject.content) as ours,
        bookkeeper_cluster(ours.cluster, directory) as cluster,
        _jobs_at(ours, cluster, directory.name) as theirs,
    ):
        table = in_memory(spark, subject.table(setting), setting.directory)
        sides = {"our bookies": ours, "Apache's bookies": theirs}
        for side in sides.values():
            side.write(table, "read", quorums)
        entrants = [Entrant(f"write, {name}", partial(_write, side, table, quorums)) for name, side in sides.items()]
        entrants += [Entrant(f"read, {name}", partial(_read, side, table)) for name, side in sides.items()]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
    return Result("apache_bookies_spark_100B", ABOUT_SPARK, samples, notes=NOTES[:1])


@contextmanager
def _jobs_at(ours: SparkJobs, cluster: BookKeeperCluster, root: str) -> Iterator[SparkJobs]:
    uri = f"zk://{ours.cluster.zookeeper.address}/{root}"
    if command(["cluster", "init", "--metadata", uri]):
        raise RuntimeError(f"no counter of ledger ids was made at {uri}")
    with ours.at(uri, cluster.bookies) as theirs:
        yield theirs


def _write(side: SparkJobs, table: SparkTable, quorums: Quorums, _: int) -> Sample:
    return side.write_and_delete(table, quorums)


def _read(side: SparkJobs, table: SparkTable, _: int) -> Sample:
    return side.read(table, "read")
