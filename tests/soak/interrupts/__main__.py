"""Interrupts every step of every public call, cancels coroutines and forks, again and again, for as long as asked.

python -m tests.soak.interrupts [--minutes 10] [--seed 1]
python -m tests.soak.interrupts --bugs          after how many cases each deliberate bug is found
python -m tests.soak.interrupts --bug NAME [--cases 20000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter

from tests.soak.interrupts.bugs import BUGS
from tests.soak.interrupts.judge import FoundError
from tests.soak.interrupts.net import Net, quiet

MOST_CASES = 20_000
"""A bug that so many cases do not find is not found."""


def run(minutes: float, seed: int) -> int:
    net, found, began_s = Net(seed), 0, time.monotonic()
    kinds: Counter[str] = Counter()
    while (passed_s := time.monotonic() - began_s) < 60 * minutes:
        try:
            kinds[net.play()] += 1
        except FoundError as problem:
            found += 1
            print(problem, flush=True)
    print(f"seed {seed}: {net.played:,} cases, {3600 * net.played / passed_s:,.0f} an hour, {found} findings")
    print(", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items())))
    return 1 if found else 0


def found_after(bug: str, seed: int, cases: int) -> int:
    """Plant a bug, and say when it was found. Ends the process, for the bug may have left locks held."""
    with quiet():
        BUGS[bug].plant(setattr)
        net = Net(seed)
        try:
            while net.played < cases:
                net.play()
        except FoundError as problem:
            print(f"found by case {net.played}: {problem}", flush=True)
            os._exit(0)
    print("NOT FOUND", flush=True)
    os._exit(1)


def find_bugs(seed: int) -> int:
    missed = 0
    for name, bug in BUGS.items():
        command = [sys.executable, "-m", "tests.soak.interrupts", "--bug", name, "--seed", str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            said, missing = done.stdout.strip() or done.stderr.strip()[-300:], done.returncode != 0
        except subprocess.TimeoutExpired:
            said, missing = "NOT FOUND in 900 s", True
        print(f"{name} ({bug.what}): {said}", flush=True)
        missed += missing
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", choices=sorted(BUGS))
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("--cases", type=int, default=MOST_CASES)
    args = parser.parse_args()
    if args.bug is not None:
        return found_after(args.bug, args.seed, args.cases)
    return find_bugs(args.seed) if args.bugs else run(args.minutes, args.seed)


if __name__ == "__main__":
    raise SystemExit(main())
