"""``python -m tests.soak.topics --messages 1000000 --reads 1000``: topics of a real broker, read by us and by Pulsar's client.

Prints a page. Exits with 1 if anything differs, and with 2 where Maven does not get Pulsar.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.speed.environment import environment
from benchmarks.speed.measure import SkippedError
from tests.soak.topics.run import Size, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.topics", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="of all forms (default %(default)s)")
    parser.add_argument("--reads", type=int, default=1_000, metavar="N", help="at random, meanwhile (default %(default)s)")
    parser.add_argument("--window", type=float, default=10.0, metavar="S", help="seconds of a window (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="windows of each kind (default %(default)s)")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="of the broker, meanwhile (default %(default)s)")
    parser.add_argument("--keep", metavar="D", help="keep all logs and columns in this new directory")
    args = parser.parse_args()
    directory = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="bk_spark-topics-"))
    directory.mkdir(parents=True, exist_ok=True)
    print("\n".join(environment(directory).lines()), flush=True)
    try:
        outcome = play(directory, Size(args.messages, args.reads, args.window, args.rounds, args.kills), _say)
    except SkippedError as reason:
        print(f"not to be had: {reason}")
        return 2
    print(outcome.describe())
    if not outcome.holds:
        print(f"all logs are in {directory}")
    elif not args.keep:
        shutil.rmtree(directory)
    return 0 if outcome.holds else 1


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
