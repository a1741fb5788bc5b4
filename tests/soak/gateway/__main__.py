"""``python -m tests.soak.gateway --kills 300 --seed 1``: two gateways are killed in turns, and callers repeat at the other one.

Each append that was acknowledged must be there once, no other one twice or in part, and a tail that goes on at the other
gateway must see each row once. Exits with 1 if that did not hold. ``--bug NAME`` runs with a deliberate bug; ``--bugs`` runs
with each, and exits with 1 if one is not found.
"""

from __future__ import annotations

import argparse
import sys

from bk_spark import LocalCluster
from tests.soak.gateway.bugs import BUGS
from tests.soak.gateway.run import Run

KILLS_FOR_A_BUG = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.gateway", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, metavar="N", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default %(default)s")
    parser.add_argument("--bug", default="", choices=["", *BUGS], help="a deliberate bug of the gateways")
    parser.add_argument("--bugs", action="store_true", help="a run with each deliberate bug")
    args = parser.parse_args()
    if args.bugs:
        found = {bug: bool(_play(KILLS_FOR_A_BUG, args.seed, bug)) for bug in BUGS}
        for bug, is_found in found.items():
            print(f"{'found' if is_found else 'NOT FOUND'}: {bug}")
        return 0 if all(found.values()) else 1
    return 1 if _play(args.kills, args.seed, args.bug) else 0


def _play(kills: int, seed: int, bug: str) -> int:
    """How many differences there were."""
    with LocalCluster(bookies=3) as cluster:
        outcome = Run(cluster.metadata_uri, seed, bug).play(kills)
    print(", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    for difference in outcome.differences[:20]:
        print(f"DIFFERS {difference}")
    print(f"differences: {len(outcome.differences)}", flush=True)
    return len(outcome.differences)


if __name__ == "__main__":
    sys.exit(main())
