"""``python -m tests.soak.pulsar --messages 1000000 --minutes 60 --seed 1``: Pulsar on our bookies under fire.

Prints a report. Exits with 1 if it did not hold, and with 2 where Maven does not get Pulsar.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.speed.measure import SkippedError
from tests.soak.pulsar.bookies import apaches_bookies, our_bookies
from tests.soak.pulsar.outcome import Outcome
from tests.soak.pulsar.plan import draw
from tests.soak.pulsar.run import run_on


@dataclass(frozen=True, slots=True)
class Form:
    """How large a run is, and how its cluster differs from others."""

    messages: int
    """Of all topics."""
    minutes: float
    """In which they are sent."""
    faults: int
    seed: int
    is_apaches: bool = False
    """On bookies of Apache's."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the brokers, as in ``broker.conf``."""

    def play(self, directory: Path, say: Callable[[str], None]) -> Outcome:
        """One run on a cluster of its own, which ends with it. Raises SkippedError where Pulsar is not to be had."""
        plan = draw(self.seed, self.messages, self.minutes, self.faults)
        store = (apaches_bookies if self.is_apaches else our_bookies)(directory, plan.entry_log_bytes)
        with store as bookies, run_on(directory, plan, bookies, self.settings, say) as run:
            return run.play()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pulsar", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="of all topics (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="in which they are sent (default %(default)s)")
    parser.add_argument("--faults", type=int, default=60, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan (default %(default)s)")
    parser.add_argument("--apache", action="store_true", help="on bookies of Apache's")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the brokers; again for more"
    )
    parser.add_argument("--keep", metavar="D", help="keep all logs and records in this new directory")
    args = parser.parse_args()
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-pulsar-"))
    directory.mkdir(parents=True, exist_ok=True)
    settings = dict(pair.split("=", 1) for pair in args.set)
    form = Form(args.messages, args.minutes, args.faults, args.seed, args.apache, settings)
    try:
        outcome = form.play(directory, _say)
    except SkippedError as reason:
        print(f"not to be had: {reason}")
        return 2
    print(outcome.describe())
    if outcome.violations:
        print(f"all logs are in {directory}; again with the same command and --seed {args.seed}")
    elif not args.keep:
        shutil.rmtree(directory)
    return 1 if outcome.violations else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
