"""How many mutants made from the source each engine of the simulator kills, and in how much CPU.

A process for each mutant loads the mutated module in place of the shipped one, and plays those runs of each engine that reach
the mutant. A mutant is *killed* by an engine that meets a violation, that stops with an error, or that takes many times the
CPU of the shipped code. What no engine kills is a survivor: ``explained.txt`` says of each that was read why it does no harm,
or what else holds it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.checkout import ROOT
from tests.simulation.generated.reach import Reach, measure
from tests.simulation.generated.runs import ENGINES, runs
from tests.simulation.generated.sites import Site, mutated, sample

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
    name: str
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
    explained = explanations()
    found = search(count, seed, processes)
    shipped, mutants = next(found), []
    told = ", ".join(f"{fate.engine} {fate.how or 'clean'} in {fate.cpu_s:.1f} s" for fate in shipped.fates)
    yield f"the shipped code: {told}", not shipped.is_killed
    for one in found:
        mutants.append(one)
        if not one.is_killed:
            reached = "" if one.is_reached else " (no run reaches it)"
            yield f"survives: {one.name}{reached}: {explained.get(one.name, 'NOT EXPLAINED')}", one.name in explained
    for index, engine in enumerate(ENGINES):
        fates = [one.fates[index] for one in mutants]
        killed = sum(bool(fate.how) for fate in fates)
        yield f"{engine:<16} kills {killed:4} of {len(fates)} in {sum(fate.cpu_s for fate in fates):7.1f} s of CPU", True
    yield f"{'all together':<16} kill {sum(one.is_killed for one in mutants):5} of {len(mutants)}", True


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
        sys.meta_path.insert(0, _Finder(site))
    return Tried(site.name if site else "", any(reach.values()), tuple(_fate(engine, reach[engine]) for engine in ENGINES))


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


class _Loader(SourceFileLoader):
    def __init__(self, site: Site) -> None:
        super().__init__(site.module, str(ROOT / site.path))
        self._site = site

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated(self._site), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, site: Site) -> None:
        self._site = site

    def find_spec(self, fullname: str, _: Any, __: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._site.module:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(self._site), origin=str(ROOT / self._site.path))
