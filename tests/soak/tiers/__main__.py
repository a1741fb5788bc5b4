"""``python -m tests.soak.tiers --kills 200 --seed 1``: tierers are killed, no row is lost or twice. Exits with 1 if one is."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bk_spark import LocalCluster
from tests.soak.tiers.run import Run
from tests.soak.tiers.spark import spark_readers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.tiers", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default %(default)s")
    parser.add_argument("--stream", action="store_true", help="with a streaming query and batches of Spark beside them")
    args = parser.parse_args()
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(bookies=3))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiers-")))
        spark = stack.enter_context(spark_readers(cluster.metadata_uri, folder)) if args.stream else None
        outcome = Run(cluster.metadata_uri, folder, args.seed, spark).play(args.kills)
    print(f"kills: {outcome.kills}; " + ", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    for line in outcome.told.values():
        print(f"told {line}")
    for difference in outcome.differences[:20]:
        print(f"DIFFERS {difference}")
    print(f"differences: {len(outcome.differences)}")
    return 1 if outcome.differences else 0


if __name__ == "__main__":
    sys.exit(main())
