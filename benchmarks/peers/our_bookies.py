"""Apache's Java client on our bookies beside the same client on Apache's: adds, and batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.peers.bookkeeper_client import READ_BATCH, READS_IN_FLIGHT, THEIRS_IN_FLIGHT, WARMUPS
from benchmarks.peers.bookkeeper_cluster import JAVA_OPTIONS, POM, JavaPrograms, bookkeeper_cluster, java_command
from benchmarks.peers.bookkeeper_runs import PeerRuns, Pool, pool
from benchmarks.peers.fetch import jars
from benchmarks.speed.ledger_runs import Bench
from benchmarks.speed.measure import Entrant, Result, Setting, alternate, claim, workload
from bk_spark.config import KIB

OURS, THEIRS = "Java client, our bookies", "Java client, Apache's bookies"

NOTES = (
    "Apache BookKeeper's client 4.17.3, version 2 of the wire protocol, without its throttle, warm, 3/3/2, CRC32C, entries "
    "that do not compress. Three of our bookies and three of Apache's (DbLedgerStorage) take turns; both sync before an add "
    "is acked.",
)


@contextmanager
def both_bookies(setting: Setting, entries: Pool) -> Iterator[tuple[PeerRuns, PeerRuns]]:
    """The Java client on ours, and on Apache's."""
    jars(POM)  # so that nothing is started in vain where they are not to be had
    payloads = entries.write(setting.directory / "payloads")
    with Bench(setting.directory) as bench, bookkeeper_cluster(bench.local, setting.directory / "apache") as theirs:
        uri = f"zk+hierarchical://{bench.local.zookeeper.address}/ledgers"
        programs = JavaPrograms(uri, java_command(JAVA_OPTIONS, POM), setting.directory)
        with programs.client(payloads, entries.entry_bytes) as ours, theirs.client(payloads, entries.entry_bytes) as peer:
            yield PeerRuns(bench.local.bookies, ours), PeerRuns(theirs.bookies, peer)


def _register_adds(entry_bytes: int, size: str, full: int) -> None:
    name = f"our_bookies_adds_{size.replace(' ', '')}"
    about = f"entries of {size} added by Apache's client, 3/3/2: to our bookies, and to Apache's"

    @workload(name, about)
    def adds(setting: Setting) -> Result:
        entries, count = pool(entry_bytes, setting.seed), setting.choose(full, 2_000)
        with both_bookies(setting, entries) as sides:
            entrants = [
                Entrant(name, runs.add(count, THEIRS_IN_FLIGHT)) for name, runs in zip((OURS, THEIRS), sides, strict=True)
            ]
            samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
        rates = {who: [one.rows_per_s for one in found] for who, found in samples.items()}
        text = f"adds of {size} by Apache's client, entries/s on our bookies against Apache's"
        return Result(name, about, samples, [claim(text, rates[OURS], rates[THEIRS], 1.0)], NOTES)


_register_adds(100, "100 B", 250_000)
_register_adds(KIB, "1 KiB", 100_000)

ABOUT_READS = "entries of 100 B read in batches by Apache's client: from our bookies, and from Apache's"


@workload("our_bookies_reads_100B", ABOUT_READS)
def reads(setting: Setting) -> Result:
    entries, count = pool(100, setting.seed), setting.choose(800_000, 10_000)
    with both_bookies(setting, entries) as sides:
        entrants = []
        for name, runs in zip((OURS, THEIRS), sides, strict=True):
            ledger = runs.written_ledger(count, THEIRS_IN_FLIGHT)
            runs.check(ledger, count)
            entrants.append(Entrant(name, runs.read(ledger, READ_BATCH, READS_IN_FLIGHT)))
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
    rates = {who: [one.rows_per_s for one in found] for who, found in samples.items()}
    text = "batch reads of 100-byte entries by Apache's client, entries/s on our bookies against Apache's"
    return Result("our_bookies_reads_100B", ABOUT_READS, samples, [claim(text, rates[OURS], rates[THEIRS], 1.0)], NOTES)
