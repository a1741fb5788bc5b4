"""``python -m tests.soak.gateway.hostile --minutes 10 --seed 1``: each kind of hostile caller, at one gateway with tokens.

Meanwhile a good caller must be served without a failure, and threads, memory, open files and audit lines must stay bounded.
Exits with 1 if that did not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from bk_spark import BookKeeper, LocalCluster
from tests.cluster.gateway.hostile_callers import BATCH
from tests.cluster.gateway.siege import LOG, Besieged

KINDS = {"connections": 1, "guesses": 1, "endless": 1, "stalled": 1, "unsaid": 1, "garbage": 5}
"""And how long each lasts beside the others."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.gateway.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for all kinds together; default %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only this one; several times for several")
    args = parser.parse_args()
    kinds = args.kind or list(KINDS)
    problems: list[str] = []
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        with BookKeeper(cluster.metadata_uri) as client:
            for _ in range(8):  # more than a stalled reader can have in its buffers
                client.append_rows(LOG, pa.Table.from_batches([BATCH] * 64), create=True)
        besieged = Besieged(cluster.metadata_uri, Path(folder))
        with besieged.serving():
            for kind in kinds:
                minutes = args.minutes * KINDS[kind] / sum(KINDS[one] for one in kinds)
                siege = besieged.besiege(kind, minutes * 60, args.seed)
                print(siege, flush=True)
                problems += siege.problems(minutes)
    for problem in problems[:20]:
        print(f"PROBLEM {problem}")
    print(f"problems: {len(problems)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
