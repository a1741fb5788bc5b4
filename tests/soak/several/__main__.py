"""``python -m tests.soak.several --histories 500 --seed 1``: transactions and ``logColumn`` beside lists of rows, in memory.

Prints every difference with its seed, and ends with 1 if there was one. ``--seed N --histories 1`` runs one history again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.soak.several.history import History


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.several", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next ones follow")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # of transactions that are dropped
    begun, differences, commits, reads = time.monotonic(), 0, 0, 0
    for seed in range(given.seed, given.seed + given.histories):
        history = History(seed)
        try:
            history.run()
        except Exception:
            differences += 1
            print(f"seed {seed}:\n{traceback.format_exc(limit=-6)}", flush=True)
        commits, reads = commits + history.commits, reads + history.reads
    spent_s = time.monotonic() - begun
    print(f"{given.histories} histories, {commits} commits, {reads} reads, {differences} differences, {spent_s:.0f} s")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
