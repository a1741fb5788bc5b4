"""The command that runs the workloads of one package: ``benchmarks.speed`` or ``benchmarks.peers``.

Each workload runs in a process of its own, so that the memory, the Spark session and the threads of one are not those of the
next. Small ones share a process, and so the start of Java and of Python: their figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import pkgutil
import signal
import statistics
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from benchmarks.speed.environment import environment
from benchmarks.speed.measure import WORKLOADS, Claim, Result, Sample, Setting, SkippedError, Workload
from benchmarks.speed.processes import SPAWN
from benchmarks.speed.results import Report, to_json

_Outcome: TypeAlias = Result | SkippedError | None

RUNS = 5
NO_WORKLOADS = {"__main__", "command", "report", "page", "plots"}
"""Modules that need not be there to measure: the report wants matplotlib."""


def workloads_of(package: str) -> list[Workload]:
    """The workloads that the modules of the package register."""
    path = importlib.import_module(package).__path__
    for module in pkgutil.iter_modules(path):
        if module.name not in NO_WORKLOADS:
            importlib.import_module(f"{package}.{module.name}")
    return [one for one in WORKLOADS.values() if one.run.__module__.startswith(f"{package}.")]


def run(package: str, arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a workload failed. One that is skipped did not fail."""
    known = {one.name: one for one in workloads_of(package)}
    args = _parser(package, list(known)).parse_args(arguments)
    if args.list:
        print("\n".join(f"{one.name:32} {one.about}" for one in known.values()))
        return 0
    names = list(known) if args.all else args.names
    if not names:
        print("which workloads? Name some, or give --all; --list shows those that there are", file=sys.stderr)
        return 2
    if unknown := [name for name in names if name not in known]:
        print(f"no workload is called {', '.join(unknown)}; --list shows those that there are", file=sys.stderr)
        return 2
    return _run(args, package, [known[name] for name in names])


def _parser(package: str, names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=importlib.import_module(package).__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"workloads: {', '.join(names)}")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--list", action="store_true", help="show the names, and run nothing")
    parser.add_argument("--small", action="store_true", help="one round of tiny data: shows that they run")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"rounds of each workload (default {RUNS})")
    parser.add_argument("--seed", type=int, default=1, help="of all data (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result is written")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured (default: where temporary files are)")
    return parser


def _run(args: argparse.Namespace, package: str, workloads: Sequence[Workload]) -> int:
    signal.signal(signal.SIGTERM, _leave)
    runs = 1 if args.small else args.runs
    here = environment(args.directory or Path(tempfile.gettempdir()))
    print("\n".join(here.lines()), flush=True)
    results, failed = [], []
    for together in [workloads] if args.small else [[one] for one in workloads]:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=args.directory) as directory:
            setting = Setting(args.small, runs, args.seed, Path(directory))
            for one, outcome in _outcomes(package, together, setting):
                if isinstance(outcome, Result):
                    results.append(outcome)
                    print("\n".join(_lines(outcome)), flush=True)
                elif isinstance(outcome, SkippedError):
                    print(f"{one.name}: skipped: {outcome}", flush=True)
                else:
                    failed.append(one.name)
    if args.json:
        args.json.write_text(to_json(Report(here, args.small, runs, args.seed, results)))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _outcomes(package: str, workloads: Sequence[Workload], setting: Setting) -> Iterator[tuple[Workload, _Outcome]]:
    """Of workloads that run in one process. None for one that failed: it has said why, and the others run all the same."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run_all, args=(theirs, package, [one.name for one in workloads], setting))
    process.start()
    theirs.close()
    try:
        for one in workloads:
            print(f"=== {one.name}: {one.about}", flush=True)
            yield one, _received(ours)
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()


def _received(pipe: Connection) -> _Outcome:
    try:
        outcome: _Outcome = pipe.recv()
    except EOFError:
        return None
    return outcome


def _run_all(pipe: Connection, package: str, names: Sequence[str], setting: Setting) -> None:
    """In the workloads' process."""
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    known = {one.name: one for one in workloads_of(package)}
    for name in names:
        directory = setting.directory / name
        directory.mkdir()
        pipe.send(_outcome(known[name], replace(setting, directory=directory)))


def _outcome(one: Workload, setting: Setting) -> _Outcome:
    try:
        return one.run(setting)
    except SkippedError as reason:
        return reason
    except Exception:
        traceback.print_exc()
        return None


def _leave(*_: object) -> None:
    """On a signal: by an exception, so that what was started is stopped."""
    raise SystemExit(128 + signal.SIGTERM)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _lines(result: Result) -> Iterator[str]:
    for name, samples in result.samples.items():
        yield f"  {name:40} {_rates(samples)}"
    for one in result.claims:
        yield f"  {claim_line(one)}"
    yield from (f"  note: {note}" for note in result.notes)


def _rates(samples: Sequence[Sample]) -> str:
    rows = statistics.median(one.rows_per_s for one in samples)
    mb = statistics.median(one.bytes_per_s for one in samples) / 1e6
    names = dict.fromkeys(name for one in samples for name in one.figures)
    figures = (
        f"{name} {statistics.median(one.figures[name] for one in samples if name in one.figures):,.3g}" for name in names
    )
    return f"{rows:12,.0f} rows/s {mb:9,.1f} MB/s  {'  '.join(figures)}"


def claim_line(one: Claim) -> str:
    verdict = "reached" if one.is_met else "NOT REACHED"
    wanted = f"{'at least' if one.at_least else 'at most'} {one.wanted:g}"
    return f"{one.text}: {one.ratio:.2f} ({one.lowest:.2f} to {one.highest:.2f}), wanted {wanted}: {verdict}"
