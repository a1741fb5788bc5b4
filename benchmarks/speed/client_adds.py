"""Adds of batches without Spark, beside what wire and disk allow, and what they write to the disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.speed.disk import Disk
from benchmarks.speed.ledger_runs import Bench, Quorums
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, Setting, alternate, claim, in_series, workload
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.wire import Wire
from bk_spark.config import KIB, MIB

ALL, STRIPED = Quorums(3, 3, 2), Quorums(3, 2, 2)
POOL = 16
"""Different batches."""

MIDDLE_BYTES = 100_000
"""Adds that are large enough to be written once, and small enough to share a sync, and a page of the disk, with others."""

NOTES = (
    "Through wire and disk go the same replicated bytes, in pieces of 1 MiB: three servers in processes of their own that ack "
    "each piece, and three processes that sync every eighth piece. `written` is `write_bytes` of the bookies' `/proc/PID/io` "
    "for each byte of the user and replica, checkpoints included.",
)


@dataclass(frozen=True, slots=True)
class Load:
    size: str
    entry_bytes: int
    entries: int
    """Of one batch."""
    user_bytes: int
    seed: int

    def batches_of(self, entries: int) -> Callable[[Bench, Quorums], Sample]:
        """A run with batches of this many entries."""
        pool = [incompressible(entries, self.entry_bytes, self.seed + number) for number in range(POOL)]
        count = max(1, self.user_bytes // (entries * self.entry_bytes))
        return lambda bench, quorums: bench.append_batches(quorums, pool, count)


def _samples(setting: Setting, load: Load) -> dict[str, list[Sample]]:
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(setting.directory))
        disk = stack.enter_context(Disk(setting.directory / "disk"))
        wire = stack.enter_context(Wire())
        large, middle = load.batches_of(load.entries), load.batches_of(MIDDLE_BYTES // load.entry_bytes)
        entrants = []
        for quorums in (ALL, STRIPED):
            entrants += _beside_ceilings(partial(large, bench, quorums), wire, disk, load.user_bytes, quorums)
        entrants.append(Entrant(_name("bk_spark", ALL) + ", batches of 100 kB", lambda _: middle(bench, ALL)))
        return alternate(entrants, setting.runs, setting.choose(1, 0))


def _beside_ceilings(ours: Callable[[], Sample], wire: Wire, disk: Disk, user_bytes: int, quorums: Quorums) -> list[Entrant]:
    copies = quorums.copies_each
    return [
        Entrant(_name("bk_spark", quorums), lambda _: ours()),
        Entrant(_name("wire", quorums), lambda _: wire.move(user_bytes, MIB, copies)),
        Entrant(_name("disk", quorums), lambda _: disk.write(user_bytes, MIB, copies)),
    ]


def _name(what: str, quorums: Quorums) -> str:
    return f"{what}, {quorums}"


def _against_ceilings(load: Load, quorums: Quorums, samples: dict[str, list[Sample]]) -> Claim:
    ours, wires, disks = ([one.bytes_per_s for one in samples[_name(what, quorums)]] for what in ("bk_spark", "wire", "disk"))
    bounds = [in_series(wire, disk) for wire, disk in zip(wires, disks, strict=True)]
    text = f"client without Spark, {load.size}, {quorums}, against 1 / (1/wire + 1/disk) for the same replicated bytes"
    return claim(text, ours, bounds, 0.6)


def _written(load: Load, name: str, samples: dict[str, list[Sample]]) -> Claim:
    """One byte for each byte of the user and replica is what must be written."""
    found = [one.figures["written"] for one in samples[name]]
    text = f"bytes written to disk per user byte and replica, entries of {load.size}: {name}"
    return claim(text, found, [1.0] * len(found), 1.1, at_least=False)


def _register(size: str, entry_bytes: int, entries: int) -> None:
    name = f"client_adds_{size.replace(' ', '')}"
    about = f"entries of {size} in batches of {entries:,}, 3/3/2 and 3/2/2, against wire and disk in series"

    @workload(name, about)
    def adds(setting: Setting) -> Result:
        load = Load(size, entry_bytes, entries, setting.choose(256 * MIB, 4 * MIB), setting.seed)
        samples = _samples(setting, load)
        claims = [_against_ceilings(load, quorums, samples) for quorums in (ALL, STRIPED)]
        claims += [_written(load, found, samples) for found in samples if found.startswith(_name("bk_spark", ALL))]
        return Result(name, about, samples, claims, NOTES)


_register("100 B", 100, 10_000)
_register("1 KiB", KIB, 1_024)
