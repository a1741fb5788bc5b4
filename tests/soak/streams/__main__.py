"""``python -m tests.soak.streams --kills 50 --seed 1``: a real stream under fire, with a report.

Exits with 1 if it did not hold.

A standalone Spark cluster with two workers, five bookies, a driver for each of two queries, and a tailer of Spark's event logs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.soak.streams.forms import LONG, SHORT, Form
from tests.soak.streams.plan import DRIVER, draw
from tests.soak.streams.run import Outcome, Run

MAX_LINES = 20
"""Violations that are printed."""


def describe(outcome: Outcome) -> str:
    """What was run, what was killed, and what is wrong."""
    victims = Counter(blow.kill.victim for blow in outcome.blows)
    met = Counter(blow.met for blow in outcome.blows if blow.kill.victim == DRIVER)
    return "\n".join(
        (
            f"kills: {len(outcome.blows)}: " + ", ".join(f"{victim} {count}" for victim, count in sorted(victims.items())),
            "drivers died: " + (", ".join(f"{where} {count}" for where, count in sorted(met.items())) or "none"),
            f"rows of A: {outcome.rows}, of {outcome.batches} batches; batches dropped as duplicates: {outcome.dropped}",
            f"event log lines: {outcome.lines} of {outcome.applications} applications",
            f"seconds: {outcome.seconds:.0f}",
            *(f"VIOLATED {violation}" for violation in outcome.violations[:MAX_LINES]),
            f"violations: {len(outcome.violations)}",
        )
    )


def play(directory: Path, form: Form, kills: int, seed: int, *, apache: bool = False) -> Outcome:
    """One run on a cluster of its own, which ends with it. ``apache``: with bookies of Apache's."""
    with form.store(directory / "cluster", apache=apache) as store, form.spark(directory / "spark") as spark:
        files = directory / "run"
        files.mkdir()
        with Run(files, form, store, spark, seed) as run:
            return run.play(draw(seed, kills, form.victims))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.streams", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan (default %(default)s)")
    parser.add_argument("--short", action="store_true", help="one driver with local executors instead of a Spark cluster")
    parser.add_argument("--apache", action="store_true", help="on bookies of Apache's")
    parser.add_argument("--keep", metavar="D", help="keep all logs in this new directory")
    args = parser.parse_args()
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-streams-"))
    directory.mkdir(parents=True, exist_ok=True)
    outcome = play(directory, SHORT if args.short else LONG, args.kills, args.seed, apache=args.apache)
    print(describe(outcome))
    if outcome.violations:
        print(f"all logs are in {directory}; again with --kills {args.kills} --seed {args.seed}")
    elif not args.keep:
        shutil.rmtree(directory)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
