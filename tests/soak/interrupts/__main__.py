"""Interrupts every step of every call of writers, again and again, for as long as asked.

python -m tests.soak.interrupts [--minutes 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import time

from tests.soak.interrupts.writers import CASES, FoundError, Sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance, sweep, found = random.Random(args.seed), Sweep(), 0
    began_s = time.monotonic()
    steps = {case: sweep.steps(case) for case in CASES}
    while (passed_s := time.monotonic() - began_s) < 60 * args.minutes:
        case = chance.choice(CASES)
        try:
            sweep.interrupt(case, chance.randint(1, steps[case]))
        except FoundError as problem:
            found += 1
            print(problem, flush=True)
    rate = f"{3600 * sweep.injections / passed_s:,.0f} an hour"
    print(f"seed {args.seed}: {sweep.injections:,} interrupts, {rate}, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
