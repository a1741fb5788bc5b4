"""The command: plays the scenarios, prints their tables, and writes them to files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time

from benchmarks.simulated_cluster import __doc__ as about
from benchmarks.simulated_cluster import scenarios, tables
from benchmarks.simulated_cluster.churn import play
from benchmarks.simulated_cluster.hot_log import worst_windows
from benchmarks.simulated_cluster.layout import laid_out
from benchmarks.simulated_cluster.recoveries import Loss, recovered, restarted

MARKER = "<!-- Made by make scale: what people write stands above this line. -->"

Part = tuple[list[str], object]
"""Lines for people, and the same for programs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_cluster", description=about)
    parser.add_argument("--small", action="store_true", help="small clusters: some seconds")
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(GROUPS)}, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures are written")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"where the tables are written, behind the line {MARKER}")
    args = parser.parse_args()
    names = list(GROUPS) if args.only is None else args.only.split(",")
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        parser.error(f"there is no group {unknown[0]!r}: there are {', '.join(GROUPS)}")
    lines, figures = list[str](), dict[str, object]()
    for name in names:
        began_s = process_time()
        part, figures[name] = GROUPS[name](args.small, args.seed)
        print("\n".join(["", *part]), flush=True)
        print(f"  {name}: {process_time() - began_s:.0f} s of CPU", file=sys.stderr, flush=True)
        lines += ["", *part]
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.page is not None:
        _write_page(args.page, lines)
    return 0


def _write_page(page: Path, lines: Sequence[str]) -> None:
    """What people wrote above the marker stays."""
    above, _, _ = (page.read_text() if page.exists() else "").partition(MARKER)
    page.write_text("\n".join([f"{above}{MARKER}", *lines]) + "\n")


def _losses(title: str, plans: Callable[..., Sequence[Loss]], axis: str) -> Callable[[bool, int], Part]:
    def group(small: bool, seed: int) -> Part:
        found = [(plan, recovered(plan, seed)) for plan in plans(small=small)]
        bars = tables.curve([(plan.name, one.whole_s, one.limit.seconds) for plan, one in found], axis)
        lines = [f"## {title}", "", *tables.of_recoveries(found), "", *tables.of_means(found), "", *bars]
        return lines, [{"plan": asdict(plan), "recovery": asdict(one)} for plan, one in found]

    return group


def _restarts(small: bool, seed: int) -> Part:
    found = {plan.name: restarted(plan, seed) for plan in scenarios.restarts(small=small)}
    return ["## Rolling restarts", "", *tables.of_restarts(found)], {name: asdict(one) for name, one in found.items()}


def _churns(small: bool, seed: int) -> Part:
    found = {name: play(plan) for name, plan in scenarios.churns(small=small).items()}
    last = len(next(iter(found.values()))) - 1
    days = sorted({0, last // 6, last // 3, last // 2, last})
    lines = ["## A month of churn: highest over mean of the space", "", *tables.of_churns(found, days)]
    return lines, {name: [asdict(one) for one in spreads] for name, spreads in found.items()}


def _hot_logs(small: bool, seed: int) -> Part:
    bookies = laid_out(20 if small else 100, 10)
    found = {name: worst_windows(bookies, log, scenarios.WINDOWS_S, seed) for name, log in scenarios.hot_logs().items()}
    return ["## A hot log: highest over mean of the writes", "", *tables.of_hot_logs(found, scenarios.WINDOWS_S)], found


GROUPS: dict[str, Callable[[bool, int], Part]] = {
    "sizes": _losses("A bookie is lost: more bookies", scenarios.sizes, "seconds until all copies are whole"),
    "ledgers": _losses(
        "A bookie is lost: more ledgers, the same bytes", scenarios.many_ledgers, "seconds until all copies are whole"
    ),
    "workers": _losses("A bookie is lost: more workers", scenarios.workers, "seconds until all copies are whole"),
    "losses": _losses("Larger losses, and a slow bookie", scenarios.larger_losses, "seconds until all copies are whole"),
    "restarts": _restarts,
    "churn": _churns,
    "hot": _hot_logs,
}

if __name__ == "__main__":
    sys.exit(main())
