"""Which runs of the shipped code reach a mutant's lines: no other run can kill the mutant, so no other is played."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import coverage

from tests.checkout import ROOT
from tests.simulation.generated.runs import ENGINES, runs
from tests.simulation.generated.sites import Site, all_sites

LOADED = "loaded"
"""The context of lines that are executed while the code is loaded: what they make is there for each run."""

Reach = dict[str, list[int]]
"""Engine → the numbers of its runs that reach a mutant."""


def measure(sites: Sequence[Site]) -> list[Reach]:
    """For each of ``sites``. Plays the shipped code once under a tracer, in this process, which must not have loaded it."""
    paths = sorted({site.path for site in all_sites()})
    tracer = coverage.Coverage(data_file=None, include=[str(ROOT / path) for path in paths], messages=False)
    tracer.start()
    tracer.switch_context(LOADED)
    for path in paths:
        importlib.import_module(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    for engine in ENGINES:
        for number, run in enumerate(runs(engine)):
            tracer.switch_context(_context(engine, number))
            violation = run()
            assert violation is None, f"run {number} of {engine} on the shipped code: {violation}"
    tracer.stop()
    data = tracer.get_data()
    contexts = {path: data.contexts_by_lineno(str(ROOT / path)) for path in paths}
    return [_reach(site, contexts[site.path]) for site in sites]


def _reach(site: Site, contexts: dict[int, list[str]]) -> Reach:
    found = {context for line in site.lines for context in contexts.get(line, ())}
    return {
        engine: [n for n in range(len(runs(engine))) if LOADED in found or _context(engine, n) in found] for engine in ENGINES
    }


def _context(engine: str, number: int) -> str:
    return f"{engine}/{number}"
