"""``python -m tests.soak.latest --histories 2000 --seed 1``: reads with ``view=latest`` beside a dictionary, in memory.

Prints every difference with its seed, and ends with 1 if there was one. ``--seed N --histories 1`` runs one history again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from bk_spark.bookkeeper import BookKeeper
from tests.soak.latest.history import Clock, History
from tests.soak.latest.memory_cluster import URI, memory_cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.latest", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next ones follow")
    given = parser.parse_args()
    begun, differences, reads = time.monotonic(), 0, 0
    for seed in range(given.seed, given.seed + given.histories):
        clock = Clock()
        with memory_cluster(clock), BookKeeper(URI) as client:
            history = History(client, seed, clock)
            try:
                history.run()
            except Exception:
                differences += 1
                print(f"seed {seed}:\n{traceback.format_exc(limit=-6)}", flush=True)
            reads += history.reads
    print(f"{given.histories} histories, {reads} reads, {differences} differences, {time.monotonic() - begun:.0f} s")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
