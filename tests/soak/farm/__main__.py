"""``python -m tests.soak.farm --minutes 60``: all engines on new seeds for as long as it is given, and one page of what came.

``python -m tests.soak.farm --replay FILE`` prints the trace of a failure. Exits with 1 if anything failed, or fails again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.soak.farm.farm import Farm
from tests.soak.farm.page import page
from tests.soak.farm.real import RealProcesses
from tests.soak.farm.tasks import replayed

PAGE = "page.md"

PATIENCE_S = 300.0
"""For what real processes are doing when the time is over."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.farm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, metavar="N", help="default %(default)s")
    parser.add_argument("--directory", type=Path, default=Path("farm"), metavar="D", help="corpus, failures, page.md")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, metavar="N", help="default: the clock")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one for each core")
    parser.add_argument("--simulated-only", action="store_true", help="no real processes")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.replay:
        played = replayed(args.replay)
        print("\n".join(played.trace))
        return 1 if played.violation else 0
    print(f"seed {args.seed}", flush=True)
    farm, begun_s = Farm(args.directory, args.seed), time.monotonic()
    real = None if args.simulated_only else RealProcesses(args.directory / "real", args.seed)
    try:
        farm.run(60 * args.minutes, args.processes if real is None else max(1, args.processes - 1))
    finally:
        if real is not None:
            real.end(PATIENCE_S)
        runs, left_out = ({}, {}) if real is None else (real.runs, real.left_out)
        text = page(farm, runs, left_out, time.monotonic() - begun_s)
        (args.directory / PAGE).write_text(text)
        print(text)
    has_failed = any(farm.failures.values()) or (real is not None and any(runs.failed for runs in real.runs.values()))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
