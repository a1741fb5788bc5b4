"""The command: fills clusters, runs operations on them, prints the table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.scale import operations
from benchmarks.scale.made_cluster import FIRST, made_cluster
from benchmarks.scale.measured import Used
from benchmarks.scale.operation import OPERATIONS
from benchmarks.scale.size import Size
from benchmarks.scale.table import figures, grown, lines

SMALL = 1_000


def main() -> int:
    operations.load()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=operations.__doc__)
    parser.add_argument(
        "--ledgers", type=int, default=1_000_000, help="in the large cluster (default %(default)s); the other one has a tenth"
    )
    parser.add_argument("--small", action="store_true", help=f"{SMALL} ledgers")
    parser.add_argument("--only", metavar="NAMES", help="these operations, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the operations, and run none")
    parser.add_argument("--heap", default="4g", help="the memory of ZooKeeper (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the clusters are for a while (default: a temporary directory)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures are written")
    args = parser.parse_args()
    names = list(OPERATIONS) if args.only is None else args.only.split(",")
    unknown = [name for name in names if name not in OPERATIONS]
    if unknown:
        parser.error(f"there is no operation {unknown[0]!r}: --list shows them")
    if args.list:
        print("\n".join(f"{name:20} {OPERATIONS[name].about}" for name in names))
        return 0
    sizes = Size((SMALL if args.small else args.ledgers) // 10), Size(SMALL if args.small else args.ledgers)
    found = [_run(size, names, args) for size in sizes]
    rows = list(grown(sizes, *found))
    print("\n".join(lines(rows)))
    if args.json is not None:
        args.json.write_text(json.dumps([{**asdict(row), "exponents": row.exponents} for row in rows], indent=1) + "\n")
    return 0


def _run(size: Size, names: Sequence[str], args: argparse.Namespace) -> dict[str, dict[str, Used]]:
    found: dict[str, dict[str, Used]] = {}
    with (
        tempfile.TemporaryDirectory(dir=args.directory) as directory,
        made_cluster(size, Path(directory) / "cluster", args.heap) as cluster,
    ):
        print(f"{size.ledgers:,} ledgers", file=sys.stderr, flush=True)
        needed = {part for name in names for part in OPERATIONS[name].needs}
        cluster.need([part for part in FIRST if part in needed])
        for name in names:
            cluster.need(OPERATIONS[name].needs)
            found[name] = OPERATIONS[name].run(cluster)
            for part, used in found[name].items():
                shown = ", ".join(f"{figure} {value:.4g}" for figure, value in figures(used).items())
                print(f"  {name} {part}: {shown} {dict(used.requests)}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
