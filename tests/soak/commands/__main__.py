"""``python -m tests.soak.commands --minutes 60 --seed 1``: every command with random arguments and files, killed and doubled.

``--bug NAME`` plants a deliberate bug, and ``--bugs`` looks for each of them. Exits with 1 if there were findings, or if a bug
was not found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bk_spark.local.cluster import LocalCluster
from tests.soak.commands.bugs import BUGS
from tests.soak.commands.cases import Outcome
from tests.soak.commands.net import Net, net, shown

MAX_CASES_OF_A_BUG = 300


@contextmanager
def a_net(seed: int, bug: str | None) -> Iterator[Net]:
    """On a cluster of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="commands-") as folder,
        LocalCluster(bookies=3) as cluster,
        net(cluster, Path(folder), seed, bug) as one,
    ):
        yield one


def run(minutes: float, seed: int, bug: str | None) -> int:
    began_s, cases, findings = time.monotonic(), 0, 0
    counts: Counter[str] = Counter()
    with a_net(seed, bug) as one:
        while time.monotonic() < began_s + minutes * 60:
            outcome = one.play()
            cases += 1
            counts.update(_kinds(outcome))
            if outcome.problems:
                findings += 1
                print(f"case {cases} of seed {seed}: {shown(outcome)}", flush=True)
    hours = (time.monotonic() - began_s) / 3600
    print(f"{cases} cases, {cases / hours:.0f} an hour, {findings} findings")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if findings else 0


def find_bugs(seed: int) -> int:
    missed = 0
    for name, bug in BUGS.items():
        with a_net(seed, name) as one:
            cases = next((case for case in range(1, MAX_CASES_OF_A_BUG + 1) if one.play().problems), None)
        print(f"{name} ({bug.what}): {'NOT FOUND' if cases is None else f'found by case {cases}'}", flush=True)
        missed += cases is None
    return 1 if missed else 0


def _kinds(outcome: Outcome) -> list[str]:
    case = outcome.case
    kinds = [" ".join(case.words[:2]), "twice at once"] if case.copies > 1 else [" ".join(case.words[:2])]
    kinds += [f"exit {one.code}" for one in outcome.ended]
    return kinds + (["stopped on the way"] if any(one.was_told for one in outcome.ended) else [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.commands", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", choices=sorted(BUGS))
    parser.add_argument("--bugs", action="store_true")
    args = parser.parse_args()
    return find_bugs(args.seed) if args.bugs else run(args.minutes, args.seed, args.bug)


if __name__ == "__main__":
    sys.exit(main())
