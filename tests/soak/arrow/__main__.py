"""``python -m tests.soak.arrow --minutes 60 --seed 1``: Arrow data into logs and out of them; ``--bugs``: deliberate bugs.

Prints every finding with its seed, and cases an hour; ends with 1 if there was a finding, or a bug was not found in time.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable

from tests.soak.arrow.bugs import BUGS, found_after, run_case
from tests.soak.arrow.on_cluster import on_a_cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.arrow", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1, help="cases begin with a million times it")
    parser.add_argument("--bugs", action="store_true", help="make the deliberate bugs instead, one after the other")
    parser.add_argument("--cluster", action="store_true", help="by every real way, on a cluster of its own")
    parser.add_argument("--spark", action="store_true", help="the same, and by Spark, too")
    parser.add_argument("--tier", action="store_true", help="on a cluster, with a tier to which rows move behind each append")
    given = parser.parse_args()
    if given.bugs:
        return _bugs()
    if given.cluster or given.spark or given.tier:
        with on_a_cluster(is_with_spark=given.spark, is_tiered=given.tier) as run:
            return _cases(given.minutes * 60, given.seed * 1_000_000, run)
    return _cases(given.minutes * 60, given.seed * 1_000_000, run_case)


def _bugs() -> int:
    missed = 0
    for bug in BUGS:
        found = found_after(bug, bug.within)
        missed += found is None
        print(f"{bug.name}: {f'found after {found} cases' if found else f'not found within {bug.within} cases'}", flush=True)
    return 1 if missed else 0


def _cases(seconds: float, first: int, run: Callable[[int], None]) -> int:
    begun, findings, seed = time.monotonic(), 0, first
    while time.monotonic() - begun < seconds:
        try:
            run(seed)
        except Exception:
            findings += 1
            print(f"seed {seed}:\n{traceback.format_exc(limit=-6)}", flush=True)
        seed += 1
    spent = time.monotonic() - begun
    print(f"{seed - first} cases, {findings} findings, {(seed - first) / spent * 3600:,.0f} cases an hour")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
