"""Ours beside Apache BookKeeper, its Java client and three of its bookies on the same disk: adds, and reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.peers.bookkeeper_cluster import POM, bookkeeper_cluster
from benchmarks.peers.bookkeeper_runs import (
    QUORUMS,
    PeerRuns,
    Pool,
    append_batches,
    append_singly,
    check_content,
    pool,
    read_batches,
)
from benchmarks.peers.fetch import jars
from benchmarks.speed.ledger_runs import Bench, append_at_rate
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, Setting, alternate, claim, workload
from bk_spark.config import KIB

IN_FLIGHT = 10_000
"""Our single adds under way."""

THEIRS_IN_FLIGHT = 30_000
"""Theirs: the best of those in ``bookkeeper_settings``."""

READ_BATCH, READS_IN_FLIGHT = 10_000, 4
"""Entries that one of their batched reads asks for, and reads under way: likewise."""

WARMUPS = 2
"""A turn each: until Java has compiled what it runs."""

OURS, OURS_SINGLY, THEIRS = "bk_spark, append_batch", "bk_spark, append_async", "BookKeeper, asyncAddEntry"
OUR_READ, THEIR_READ, THEIR_SINGLE_READ = "bk_spark, read", "BookKeeper, batchReadAsync", "BookKeeper, readAsync"

NOTES = (
    "Apache BookKeeper 4.17.3 at its defaults (the journal is synced before an add is acked) but for DbLedgerStorage, "
    "1 GiB of heap and of direct memory; its client with the second version of the wire protocol, without its throttle. "
    "Both sides: three bookies on one disk, 3/3/2, CRC32C, entries that do not compress, a client that is warm.",
)


@contextmanager
def side_by_side(setting: Setting, entries: Pool) -> Iterator[tuple[Bench, PeerRuns]]:
    """Both clusters, which were seen to keep what they are given."""
    jars(POM)  # so that nothing is started in vain where they are not to be had
    payloads = entries.write(setting.directory / "payloads")
    with (
        Bench(setting.directory) as bench,
        bookkeeper_cluster(bench.local, setting.directory / "apache") as cluster,
        cluster.client(payloads, entries.entry_bytes) as peer,
    ):
        runs, count = PeerRuns(cluster.bookies, peer), setting.choose(200_000, 2_000)
        runs.check(runs.written_ledger(count, THEIRS_IN_FLIGHT), count)
        check_content(bench, bench.written_ledger(QUORUMS, entries.batches, len(entries.batches)), entries)
        yield bench, runs


def _rates(samples: Mapping[str, Sequence[Sample]], ours: str, theirs: str) -> tuple[list[float], list[float]]:
    return [one.rows_per_s for one in samples[ours]], [one.rows_per_s for one in samples[theirs]]


def _register_adds(entry_bytes: int, size: str, full: int) -> None:
    name = f"bookkeeper_adds_{size.replace(' ', '')}"
    about = f"entries of {size} added, 3/3/2, ours in batches and singly, theirs singly, pipelined"

    @workload(name, about)
    def adds(setting: Setting) -> Result:
        entries, count = pool(entry_bytes, setting.seed), setting.choose(full, 2_000)
        with side_by_side(setting, entries) as (bench, peer):
            entrants = [
                Entrant(OURS, append_batches(bench, entries, setting.choose(8 * full, 2_000))),
                Entrant(OURS_SINGLY, append_singly(bench, entries, count, IN_FLIGHT)),
                Entrant(THEIRS, peer.add(count, THEIRS_IN_FLIGHT)),
            ]
            samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
        return Result(name, about, samples, _add_claims(size, samples), NOTES)


def _add_claims(size: str, samples: Mapping[str, Sequence[Sample]]) -> list[Claim]:
    text = f"adds of {size} entries, 3/3/2, entries/s of ours"
    return [
        claim(f"{text} (append_batch) against asyncAddEntry", *_rates(samples, OURS, THEIRS), 5.0),
        claim(f"{text} (append_async) against asyncAddEntry", *_rates(samples, OURS_SINGLY, THEIRS), 2.0),
    ]


_register_adds(100, "100 B", 250_000)
_register_adds(KIB, "1 KiB", 100_000)

PER_S = 1_000

ABOUT_LATENCY = f"single adds of 100 B at {PER_S:,}/s, 3/3/2, ours and theirs"


@workload("bookkeeper_latency", ABOUT_LATENCY)
def latency(setting: Setting) -> Result:
    entries, for_s = pool(100, setting.seed), setting.choose(5.0, 0.2)

    def ours(_: int) -> Sample:
        with bench.writer(QUORUMS) as writer:
            return append_at_rate(writer, bytes(entries.entry_bytes), PER_S, for_s)

    with side_by_side(setting, entries) as (bench, peer):
        entrants = [Entrant(OURS_SINGLY, ours), Entrant(THEIRS, peer.pace(round(PER_S * for_s), PER_S))]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
    claims = []
    for name in ("p50", "p99"):
        mine, other = ([one.figures[f"{name}_ms"] for one in samples[who]] for who in (OURS_SINGLY, THEIRS))
        text = f"{name} of single adds of 100 B at {PER_S:,}/s, ours against asyncAddEntry"
        claims.append(claim(text, mine, other, 1.0, at_least=False))
    return Result("bookkeeper_latency", ABOUT_LATENCY, samples, claims, NOTES)


ABOUT_READS = "entries of 100 B read from a closed ledger, ours as record batches, theirs in batched and in single reads"


@workload("bookkeeper_reads_100B", ABOUT_READS)
def reads(setting: Setting) -> Result:
    entries, count = pool(100, setting.seed), setting.choose(1_600_000, 160_000)
    with side_by_side(setting, entries) as (bench, peer):
        ours = bench.written_ledger(QUORUMS, entries.batches, count // len(entries.batches[0]))
        theirs, shorter = (peer.written_ledger(size, THEIRS_IN_FLIGHT) for size in (count, count // 8))
        entrants = [
            Entrant(OUR_READ, read_batches(bench, ours, setting.choose(4, 1))),
            Entrant(THEIR_READ, peer.read(theirs, READ_BATCH, READS_IN_FLIGHT)),
            Entrant(THEIR_SINGLE_READ, peer.read_each(shorter, 1_000, 10)),
        ]
        samples = alternate(entrants, setting.runs, setting.choose(WARMUPS, 1))
        check_content(bench, ours, entries)
        peer.check(theirs, count)
    text = "reads of 100-byte entries, entries/s of ours against"
    claims = [
        claim(f"{text} batchReadAsync", *_rates(samples, OUR_READ, THEIR_READ), 5.0),
        claim(f"{text} readAsync", *_rates(samples, OUR_READ, THEIR_SINGLE_READ), 5.0),
    ]
    return Result("bookkeeper_reads_100B", ABOUT_READS, samples, claims, NOTES)
