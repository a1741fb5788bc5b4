"""``python -m tests.soak.transactions --kills 300 --seed 1``: writers of transactions over three logs are killed.

No reader may see a half of a transaction, and none may be lost or there twice. Exits with 1 if that did not hold.
"""

from __future__ import annotations

import argparse
import sys

from bk_spark import LocalCluster
from tests.soak.transactions.run import Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.transactions", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    with LocalCluster(bookies=3) as cluster:
        outcome = Run(cluster.metadata_uri, args.seed).play(args.kills)
    print(", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    for difference in outcome.differences[:20]:
        print(f"DIFFERS {difference}")
    print(f"differences: {len(outcome.differences)}")
    return 1 if outcome.differences else 0


if __name__ == "__main__":
    sys.exit(main())
