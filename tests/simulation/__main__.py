"""The simulator from a shell.

python -m tests.simulation run [--seeds N] [--first SEED] [--processes N] [--failures DIR] [--coverage] [--whole]
python -m tests.simulation show SEED [--whole]      the trace of one seed
python -m tests.simulation replay FILE [--whole]    the trace of a failure that ``run`` wrote down
python -m tests.simulation script FILE      the trace of a script of tests/scenarios
python -m tests.simulation mutants          after how many runs each deliberate bug is caught
python -m tests.simulation run-logs [--seeds N] [--first SEED] [--processes N] [--tiers | --transactions]
                                      duels for a log; with a tier; for three logs
python -m tests.simulation show-log SEED [--tiers | --transactions]    the trace of one duel
python -m tests.simulation log-mutants      after how many duels each deliberate bug of the log's code is caught
python -m tests.simulation generated-mutants [--count N] [--seed SEED]   how many mutants made from the source each engine kills
python -m tests.simulation exhaustive [--states N]    every schedule of small scopes, or the first N states of each
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tests.simulation.engines.branch_coverage import Coverage

if TYPE_CHECKING:
    from tests.simulation.engines.campaign import Play

SHRUNK = 3
"""Failures of a campaign that are made small and written down."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "script":
        return _script(options.file)
    if options.command in ("run-logs", "show-log", "log-mutants"):
        return _logs(options)
    if options.command == "generated-mutants":
        return _generated_mutants(options)
    if options.command in ("mutants", "exhaustive"):
        return _mutants() if options.command == "mutants" else _exhaustive(options.states)
    coverage = Coverage(of_drivers=options.whole) if options.command == "run" and options.coverage else None
    from tests.simulation.engines import campaign

    if options.command == "run":
        return _run(options, campaign, coverage)
    play = _play(options)
    shows = options.command == "show"
    outcome = campaign.run_seed(options.seed, play) if shows else campaign.replay_failure(options.file, play)
    print("\n".join(outcome.trace))
    return 1 if outcome.violation is not None else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="The protocol under faults, in virtual time."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play many seeds")
    logs = commands.add_parser("run-logs", help="play many duels for a log")
    for one in (run, logs):
        one.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
        one.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
        one.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    show_log = commands.add_parser("show-log", help="play one duel and print its trace")
    show_log.add_argument("seed", type=int)
    for one in (logs, show_log):
        kinds = one.add_mutually_exclusive_group()
        kinds.add_argument("--tiers", action="store_true", help="the log has a tier")
        kinds.add_argument("--transactions", action="store_true", help="there are three logs, with transactions over them")
    commands.add_parser("log-mutants", help="search for all deliberate bugs of the log's code")
    run.add_argument("--failures", type=Path, default=Path("simulation-failures"), help="where failures are written to")
    run.add_argument("--coverage", action="store_true", help="count the branches of the state machines (in one process, slow)")
    show = commands.add_parser("show", help="play one seed and print its trace")
    show.add_argument("seed", type=int)
    replay = commands.add_parser("replay", help="play a failure again and print its trace")
    replay.add_argument("file", type=Path)
    for one in (run, show, replay):
        one.add_argument("--whole", action="store_true", help="clients are whole programs, with their drivers")
    script = commands.add_parser("script", help="play a script and print its trace")
    script.add_argument("file", type=Path)
    commands.add_parser("mutants", help="search for all deliberate bugs with all engines")
    generated = commands.add_parser("generated-mutants", help="search for mutants made from the source with all engines")
    generated.add_argument("--count", type=int, default=200, help="how many (default: 200)")
    generated.add_argument("--seed", type=int, default=1, help="draws them (default: 1)")
    generated.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    exhaustive = commands.add_parser("exhaustive", help="search through small scopes")
    exhaustive.add_argument("--states", type=int, default=1_000_000, help="of each scope at most (default: a million, 1 GB)")
    return parser


def _script(file: Path) -> int:
    from tests.simulation.scripts.script_engine import play

    print("\n".join(play(file.read_text()).trace))
    return 0


def _logs(options: argparse.Namespace) -> int:
    from tests.simulation.engines.choices import SeededChoices
    from tests.simulation.logs import campaign as log_campaign
    from tests.simulation.logs import mutants, tier_mutants, transaction_mutants

    if options.command == "log-mutants":
        processes = os.cpu_count() or 1
        tables = (mutants.table(processes), tier_mutants.table(processes), transaction_mutants.table(processes))
        return _print_all(chain(*tables))
    kind = log_campaign.kind_of(tiers=options.tiers, transactions=options.transactions)
    if options.command == "show-log":
        outcome = kind(SeededChoices(options.seed), is_traced=True)
        print("\n".join(outcome.trace))
        return 1 if outcome.violation is not None else 0
    started_s = time.monotonic()
    totals = log_campaign.run_campaign(options.first, options.seeds, options.processes, kind)
    print(totals.report(time.monotonic() - started_s))
    for seed, problem in sorted(totals.failures.items()):
        print(f"seed {seed}: {problem}")
    return 1 if totals.failures else 0


def _mutants() -> int:
    from tests.simulation.mutants.all_mutants import table

    return _print_all(table(os.cpu_count() or 1))


def _generated_mutants(options: argparse.Namespace) -> int:
    from tests.simulation.generated.search import report

    return _print_all(report(options.count, options.seed, options.processes))


def _exhaustive(maximum_states: int) -> int:
    from tests.simulation.engines.exhaustive import report

    return _print_all(report(maximum_states))


def _print_all(lines: Iterable[tuple[str, bool]]) -> int:
    """Print lines as they come; 1 if one of them is bad news."""
    is_good = True
    for line, is_good_line in lines:
        print(line, flush=True)
        is_good &= is_good_line
    return 0 if is_good else 1


def _play(options: argparse.Namespace) -> Play:
    from tests.simulation.engines.engine import run_choices
    from tests.simulation.whole.run import run_whole

    return run_whole if options.whole else run_choices


def _run(options: argparse.Namespace, campaign: ModuleType, coverage: Coverage | None) -> int:
    started_s = time.monotonic()
    totals = campaign.Totals()
    for totals in campaign.run_campaign(options.first, options.seeds, 1 if coverage else options.processes, _play(options)):
        if sys.stderr.isatty():
            print(f"\r{totals.schedules} schedules ", end="", file=sys.stderr, flush=True)
    print(campaign.report(totals, time.monotonic() - started_s))
    if coverage is not None:
        print(coverage.report())
    failed = sorted(totals.failed_seeds)
    for seed in failed[:SHRUNK]:
        print(campaign.keep_failure(seed, options.failures, play=_play(options)))
    if failed[SHRUNK:]:
        print(f"also failed: {', '.join(map(str, failed[SHRUNK:]))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
