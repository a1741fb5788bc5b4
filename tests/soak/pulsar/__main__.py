"""``python -m tests.soak.pulsar --messages 1000000 --minutes 60 --seed 1``: Pulsar on our bookies under fire.

Prints a report. Exits with 1 if it did not hold, and with 2 where Maven does not get Pulsar.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.speed.measure import SkippedError
from tests.soak.pulsar.bookies import apaches_bookies, our_bookies
from tests.soak.pulsar.outcome import Outcome
from tests.soak.pulsar.plan import draw
from tests.soak.pulsar.run import run_on


def play(
    directory: Path, messages: int, minutes: float, faults: int, seed: int, *, apache: bool, say: Callable[[str], None]
) -> Outcome:
    """One run on a cluster of its own, which ends with it. Raises SkippedError where Pulsar is not to be had."""
    plan = draw(seed, messages, minutes, faults)
    store = (apaches_bookies if apache else our_bookies)(directory, plan.entry_log_bytes)
    with store as bookies, run_on(directory, plan, bookies, say) as run:
        return run.play()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pulsar", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="of all topics (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="in which they are sent (default %(default)s)")
    parser.add_argument("--faults", type=int, default=60, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan (default %(default)s)")
    parser.add_argument("--apache", action="store_true", help="on bookies of Apache's")
    parser.add_argument("--keep", metavar="D", help="keep all logs and records in this new directory")
    args = parser.parse_args()
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-pulsar-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        outcome = play(
            directory,
            args.messages,
            args.minutes,
            args.faults,
            args.seed,
            apache=args.apache,
            say=lambda text: print(text, flush=True),
        )
    except SkippedError as reason:
        print(f"not to be had: {reason}")
        return 2
    print(outcome.describe())
    if outcome.violations:
        again = f"--messages {args.messages} --minutes {args.minutes:g} --faults {args.faults} --seed {args.seed}"
        print(f"all logs are in {directory}; again with {again}")
    elif not args.keep:
        shutil.rmtree(directory)
    return 1 if outcome.violations else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
