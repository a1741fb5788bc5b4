"""Apache BookKeeper beside itself: which settings are the best for it, and what its syncs cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.peers.bookkeeper_cluster import DB_STORAGE, NOT_SYNCED, POM, SORTED_STORAGE, bookkeeper_cluster
from benchmarks.peers.bookkeeper_runs import PeerRuns, pool
from benchmarks.peers.fetch import jars
from benchmarks.speed.ledger_runs import Bench
from benchmarks.speed.measure import Entrant, Result, Setting, alternate, workload

ENTRY_BYTES = 100
IN_FLIGHT = 10_000
WARMUPS = 2


@contextmanager
def _clusters(setting: Setting) -> Iterator[dict[str, PeerRuns]]:
    """By what is special about each: clusters and clients."""
    jars(POM)  # so that nothing is started in vain where they are not to be had
    payloads = pool(ENTRY_BYTES, setting.seed).write(setting.directory / "payloads")
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(setting.directory, bookies=0))
        found: dict[str, PeerRuns] = {}
        for name, settings in (("", DB_STORAGE), ("SortedLedgerStorage", SORTED_STORAGE), ("not synced", NOT_SYNCED)):
            directory = setting.directory / f"apache-{len(found)}"
            cluster = stack.enter_context(bookkeeper_cluster(bench.local, directory, settings))
            found[name] = PeerRuns(cluster.bookies, stack.enter_context(cluster.client(payloads, ENTRY_BYTES)))
            if not name:
                peer = stack.enter_context(cluster.client(payloads, ENTRY_BYTES, v2=False))
                found["protobuf"] = PeerRuns(cluster.bookies, peer)
        yield found


ABOUT_ADDS = "Apache BookKeeper beside itself, entries of 100 B added: under way, storage, wire protocol, syncs"


@workload("bookkeeper_settings_adds", ABOUT_ADDS)
def adds(setting: Setting) -> Result:
    count = setting.choose(200_000, 2_000)
    with _clusters(setting) as clusters:
        plain = clusters.pop("")
        entrants = [
            Entrant(f"{under_way:,} under way", plain.add(count, under_way))
            for under_way in (100, 1_000, 5_000, 10_000, 30_000)
        ] + [Entrant(f"{IN_FLIGHT:,} under way, {name}", peer.add(count, IN_FLIGHT)) for name, peer in clusters.items()]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
    return Result("bookkeeper_settings_adds", ABOUT_ADDS, samples)


ABOUT_READS = "Apache BookKeeper beside itself, entries of 100 B read: entries a batch, batches under way, storage"


@workload("bookkeeper_settings_reads", ABOUT_READS)
def reads(setting: Setting) -> Result:
    count = setting.choose(800_000, 10_000)
    with _clusters(setting) as clusters:
        plain, other = clusters[""], clusters["SortedLedgerStorage"]
        ledger, others_ledger = plain.written_ledger(count, IN_FLIGHT), other.written_ledger(count, IN_FLIGHT)
        entrants = [
            Entrant(f"{under_way} x {batch:,}", plain.read(ledger, batch, under_way))
            for batch, under_way in ((100, 16), (1_000, 1), (1_000, 4), (10_000, 1), (10_000, 4), (30_000, 2))
        ]
        entrants += [
            Entrant("4 x 1,000, SortedLedgerStorage", other.read(others_ledger, 1_000, 4)),
            Entrant("10 x 1,000, single reads", plain.read_each(ledger, 1_000, 10)),
        ]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
    return Result("bookkeeper_settings_reads", ABOUT_READS, samples)
