"""How many mutants made from the source each engine of the simulator kills, and in how much CPU.

A process for each mutant loads the mutated module in place of the shipped one, and plays all engines within small budgets.
A mutant is *killed* by an engine that meets a violation, that stops with an error, or that takes many times the CPU of the
shipped code. What no engine kills is a survivor: ``explained.txt`` says of each that was read why it does no harm, or what
else holds it.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.checkout import ROOT
from tests.simulation.generated.sites import Site, mutated, sample

EXPLAINED = Path(__file__).with_name("explained.txt")

SCHEDULES = {"bag": 400, "virtual time": 200, "re-replication": 100}
STATES = 20_000
"""Of each small scope; the shipped code has no more."""

MOST_CPU_S = 120.0
"""Of one engine; the shipped code takes less than a tenth of it."""

MOST_MEMORY = 4 << 30
"""Address space of a process: a mutant that grows without a bound is stopped before it takes the machine's memory."""

ENGINES = ("scripts", "exhaustive", *SCHEDULES)


@dataclass(frozen=True, slots=True)
class Fate:
    """What an engine made of a mutant: ``how`` it was killed ("" if it survived), in how much CPU."""

    engine: str
    how: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    name: str
    fates: tuple[Fate, ...]

    @property
    def is_killed(self) -> bool:
        return any(fate.how for fate in self.fates)


def search(count: int, seed: int, processes: int) -> Iterator[Tried]:
    """First the shipped code, which must survive, then ``count`` mutants as they are done."""
    for package in ("numpy", "pyarrow", "google.protobuf"):
        importlib.import_module(package)  # once, for all processes that fork from this one
    assert not any(name.startswith("bk_spark") for name in sys.modules), "the shipped code is loaded already"
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap(_try, [None])
        yield from pool.imap_unordered(_try, sample(count, seed), chunksize=1)


def report(count: int, seed: int, processes: int) -> Iterator[tuple[str, bool]]:
    """Lines to print, and whether each is good news: a survivor that nobody explained is not."""
    explained = explanations()
    tried = list(_watched(search(count, seed, processes)))
    shipped, mutants = tried[0], tried[1:]
    yield f"the shipped code: {_told(shipped)}", not shipped.is_killed
    for index, engine in enumerate(ENGINES):
        fates = [one.fates[index] for one in mutants]
        killed = sum(bool(fate.how) for fate in fates)
        yield f"{engine:<16} kills {killed:4} of {len(fates)} in {sum(fate.cpu_s for fate in fates):7.1f} s of CPU", True
    survivors = sorted(one.name for one in mutants if not one.is_killed)
    yield f"{'all together':<16} kill {len(mutants) - len(survivors):5} of {len(mutants)}", True
    for name in survivors:
        yield f"survives: {name}: {explained.get(name, 'NOT EXPLAINED')}", name in explained


def explanations() -> dict[str, str]:
    """The name of a survivor → why it survives: lines in pairs, the second one indented."""
    lines = [line for line in EXPLAINED.read_text().splitlines() if line and not line.startswith("#")]
    return {name: why.strip() for name, why in zip(lines[::2], lines[1::2], strict=True)}


def _watched(tried: Iterator[Tried]) -> Iterator[Tried]:
    for number, one in enumerate(tried):
        if sys.stderr.isatty():
            print(f"\r{number} mutants ", end="", file=sys.stderr, flush=True)
        yield one


def _told(tried: Tried) -> str:
    return ", ".join(f"{fate.engine} {fate.how or 'clean'} in {fate.cpu_s:.1f} s" for fate in tried.fates)


# --- in a process of its own


class _DidNotEnd(BaseException):
    """Not an Exception, so that no code under test catches it."""


def _stop(_: int, __: FrameType | None) -> None:
    raise _DidNotEnd


def _try(site: Site | None) -> Tried:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGPROF, _stop)
    if site is not None:
        sys.meta_path.insert(0, _Finder(site))
    return Tried(site.name if site else "", tuple(_fate(engine) for engine in ENGINES))


def _fate(engine: str) -> Fate:
    began_s = _cpu_s()
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        how = _play(engine)
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


def _play(engine: str) -> str:
    """The first violation, "" if there is none."""
    players: dict[str, Callable[[], Iterator[Any]]] = {
        "scripts": _play_scripts,
        "exhaustive": _search_scopes,
        "bag": _play_bag,
        "virtual time": lambda: _play_virtual_time("virtual time", 0),
        "re-replication": lambda: _play_virtual_time("re-replication", 100),
    }
    return next((str(violation) for violation in players[engine]() if violation is not None), "")


def _play_scripts() -> Iterator[Any]:
    from tests.simulation.scripts.script_engine import play, scenarios

    for path in scenarios():
        play(path.read_text())
    yield from ()


def _search_scopes() -> Iterator[Any]:
    from tests.simulation.engines.exhaustive import Scope, search

    for scope in (Scope((2, 2, 1)), Scope((2, 2, 1), closes=True), Scope((2, 2, 2)), Scope((2, 2, 2), spares=2)):
        yield search(scope, STATES).violation


def _play_bag() -> Iterator[Any]:
    from tests.simulation.engines.bag import run_bag

    return (run_bag(seed).violation for seed in range(SCHEDULES["bag"]))


def _play_virtual_time(engine: str, replicated_percent: int) -> Iterator[Any]:
    from tests.simulation.engines.choices import SeededChoices
    from tests.simulation.engines.engine import run_choices

    for seed in range(SCHEDULES[engine]):
        yield run_choices(SeededChoices(seed), replicated_percent=replicated_percent).violation


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
