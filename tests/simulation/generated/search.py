"""How many mutants made from the source each engine of the simulator kills, and in how much CPU.

A process for each mutant loads the mutated module in place of the shipped one, and plays those runs of each engine that reach
the mutant. A mutant is *killed* by an engine that meets a violation, that stops with an error, or that takes many times the
CPU of the shipped code. The unit tests that reach it try what no engine kills. ``explained.txt`` says of each mutant that
survives them, too, why it does no harm, or what else holds it.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.simulation.generated.loading import load_in_place
from tests.simulation.generated.reach import Reach, measure
from tests.simulation.generated.runs import ENGINES, runs
from tests.simulation.generated.sites import Site, sample
from tests.simulation.generated.unit_tests import kills

EXPLAINED = Path(__file__).with_name("explained.txt")

MOST_CPU_S = 120.0
"""Of one engine; the shipped code takes less than a tenth of it."""

MOST_MEMORY = 4 << 30
"""Address space of a process: a mutant that grows without a bound is stopped before it takes the machine's memory."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What an engine made of a mutant: ``how`` it was killed ("" if it survived), in how much CPU."""

    engine: str
    how: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    site: Site | None
    """None stands for the shipped code."""
    is_reached: bool
    fates: tuple[Fate, ...]

    @property
    def is_killed(self) -> bool:
        return any(fate.how for fate in self.fates)


def search(count: int, seed: int, processes: int) -> Iterator[Tried]:
    """First the shipped code, which must survive, then ``count`` mutants as they are done."""
    sites = sample(count, seed)
    for package in ("numpy", "pyarrow", "google.protobuf"):
        importlib.import_module(package)  # once, for all processes that fork from this one
    assert not any(name.startswith("bk_spark") for name in sys.modules), "the shipped code is loaded already"
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        measured = pool.apply_async(measure, [sites])
        yield pool.apply(_try, [None, {engine: list(range(len(runs(engine)))) for engine in ENGINES}])
        yield from pool.imap_unordered(_try_one, zip(sites, measured.get(), strict=True), chunksize=1)


def report(count: int, seed: int, processes: int) -> Iterator[tuple[str, bool]]:
    """Lines to print, and whether each is good news: a survivor that nobody explained is not."""
    found = search(count, seed, processes)
    shipped, mutants = next(found), list(found)
    told = ", ".join(f"{fate.engine} {fate.how or 'clean'} in {fate.cpu_s:.1f} s" for fate in shipped.fates)
    yield f"the shipped code: {told}", not shipped.is_killed
    for index, engine in enumerate(ENGINES):
        fates = [one.fates[index] for one in mutants]
        killed = sum(bool(fate.how) for fate in fates)
        yield f"{engine:<16} kills {killed:4} of {len(fates)} in {sum(fate.cpu_s for fate in fates):7.1f} s of CPU", True
    survivors = [one for one in mutants if not one.is_killed]
    yield f"{'all together':<16} kill {len(mutants) - len(survivors):5} of {len(mutants)}", True
    yield from _judged_by_unit_tests(survivors, processes)


def _judged_by_unit_tests(survivors: list[Tried], processes: int) -> Iterator[tuple[str, bool]]:
    explained, left = explanations(), 0
    reached = {one.site: one.is_reached for one in survivors if one.site is not None}
    for site, killer in kills(sorted(reached, key=lambda one: one.name), processes):
        left += not killer
        if not killer:
            note = "" if reached[site] else " (no run reaches it)"
            yield f"survives: {site.name}{note}: {explained.get(site.name, 'NOT EXPLAINED')}", site.name in explained
    yield f"{'unit tests':<16} kill {len(reached) - left:5} of {len(reached)} that no engine kills", True


def explanations() -> dict[str, str]:
    """The name of a survivor → why it survives: lines in pairs, the second one indented."""
    lines = [line for line in EXPLAINED.read_text().splitlines() if line and not line.startswith("#")]
    return {name: why.strip() for name, why in zip(lines[::2], lines[1::2], strict=True)}


# --- in a process of its own


class _DidNotEnd(BaseException):
    """Not an Exception, so that no code under test catches it."""


def _stop(_: int, __: FrameType | None) -> None:
    raise _DidNotEnd


def _try_one(mutant: tuple[Site, Reach]) -> Tried:
    return _try(*mutant)


def _try(site: Site | None, reach: Reach) -> Tried:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGPROF, _stop)
    if site is not None:
        load_in_place(site)
    return Tried(site, any(reach.values()), tuple(_fate(engine, reach[engine]) for engine in ENGINES))


def _fate(engine: str, numbers: list[int]) -> Fate:
    began_s = _cpu_s()
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        how = _play(engine, numbers)
    except _DidNotEnd:
        how = "did not end"
    except Exception as problem:
        how = f"{type(problem).__name__}: {problem}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Fate(engine, how, _cpu_s() - began_s)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _play(engine: str, numbers: list[int]) -> str:
    """The first violation, "" if there is none."""
    played = runs(engine)
    return next((str(violation) for violation in (played[number]() for number in numbers) if violation is not None), "")
