"""``python -m tests.soak.tiers --kills 200 --seed 1``: tierers are killed, no row is lost or twice. Exits with 1 if one is."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bk_spark import LocalCluster
from tests.soak.tiers.run import Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.tiers", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory(prefix="tiers-") as folder:
        outcome = Run(cluster.metadata_uri, Path(folder), args.seed).play(args.kills)
    print(f"kills: {outcome.kills}; " + ", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    for difference in outcome.differences[:20]:
        print(f"DIFFERS {difference}")
    print(f"differences: {len(outcome.differences)}")
    return 1 if outcome.differences else 0


if __name__ == "__main__":
    sys.exit(main())
