"""What a cluster needs for so many rows a day, and which limit it meets first: the table of docs/deployment/sizing.md.

``python -m benchmarks.sizing`` prints the table, and with ``--rows-a-day``, ``--row-bytes`` and ``--days`` the line of one
plan. ``--page FILE`` writes the table behind its heading there. What a bookie, a worker and ZooKeeper can do stands in
``Machines``: measured, or assumed, as each line says.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DAY_S = 86_400
MB, GB, TB = 10**6, 10**9, 10**12
HEADING = "## From rows a day to machines"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """What the parts can do, and what one plans with."""

    disk_bytes: float = 8 * TB
    """Of a bookie, without its journal. Assumed: two disks of 4 TB."""
    disk_share: float = 0.8 * 0.95
    """Of it that rows may take: compaction's threshold, and ``disk_usage_high``."""
    copies_bytes_per_s: float = 100 * MB
    """That a bookie takes. A core takes 250 MB/s of large entries, 4 ms for each MB: docs/benchmarks.md, spark_write_1KiB."""
    peak: float = 3.0
    """The busiest minutes over the mean of the day. Assumed."""
    copy_bytes_per_s: float = 140 * MB
    """That a bookie's disks give copies of a lost bookie's ledgers: 400 MB/s, of which clients keep a third, and each copy is
    read and written. Assumed, as in the simulations of docs/scale.md."""
    over_limit: float = 1.36
    """Time of a recovery over that limit, with a worker beside each bookie: docs/scale.md, 100 bookies."""
    znode_bytes: float = 1_000
    """Of ZooKeeper's heap for a ledger with its part of a log."""
    zookeeper_bytes: float = 4 * GB
    """ZooKeeper's heap at most: larger ones make its pauses longer than a session."""
    ledger_bytes: float = 1 * GB
    """Of a ledger after the log's daily compaction."""
    ledgers_a_day: int = 2_880
    """Before it: a stream with two tasks and a trigger each minute. They stay for two days."""
    most_bookies: int = 1_000
    """As large as one plans: no recovery among more than a hundred was simulated to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    rows_a_day: int
    row_bytes: float = 100
    """As stored: compressed."""
    days: int
    copies: int = 3


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plan needs. ``asked_by``: what the number of bookies comes from."""

    written_bytes_per_s: float
    """Of all copies, in the busiest minutes."""
    held_bytes: float
    """Of all copies."""
    bookies: int
    asked_by: str
    recovery_s: float
    """Until a lost bookie's ledgers are whole again."""
    ledgers: int
    zookeeper_bytes: float
    first_limit: tuple[str, float]
    """What is at its end first when rows a day grow, and at how many: of these bookies."""
    next_limit: tuple[str, float]
    """… with as many bookies as it takes."""


def needs(plan: Plan, machines: Machines) -> Needs:
    day_bytes = plan.rows_a_day * plan.row_bytes
    written = day_bytes / DAY_S * plan.copies * machines.peak
    held = day_bytes * plan.days * plan.copies
    of_one = {
        "disks": machines.disk_bytes * machines.disk_share / held,
        "writes": machines.copies_bytes_per_s / written,
    }
    wanted = {name: math.ceil(1 / share) + 1 for name, share in of_one.items()} | {"copies, and one more": plan.copies + 1}
    asked_by = max(wanted, key=lambda one: wanted[one])
    bookies = wanted[asked_by]
    recovery_s = held / bookies / ((bookies - 1) * machines.copy_bytes_per_s) * machines.over_limit
    of_days, others = day_bytes * plan.days / machines.ledger_bytes, 2 * machines.ledgers_a_day
    ledgers = math.ceil(of_days) + others
    growth = {name: (bookies - 1) * share for name, share in of_one.items()}
    most = {f"a thousand bookies' {name}": (machines.most_bookies - 1) * share for name, share in of_one.items()}
    most["ZooKeeper's heap"] = (machines.zookeeper_bytes / machines.znode_bytes - others) / of_days
    first, last = (min((factor * plan.rows_a_day, name) for name, factor in one.items()) for one in (growth, most))
    limits = [(name, rows) for rows, name in (first, last)]
    return Needs(written, held, bookies, asked_by, recovery_s, ledgers, ledgers * machines.znode_bytes, *limits)


def lines(plans: Iterable[Plan], machines: Machines) -> list[str]:
    titles = [
        *("rows a day", "kept", "writes, busiest", "all copies", "bookies", "asked for by"),
        *("whole after a loss", "ledgers", "ZooKeeper's heap", "first limit, rows a day", "with more bookies"),
    ]
    table = [titles, ["---"] * len(titles)]
    for plan in plans:
        found = needs(plan, machines)
        table.append(
            [
                _rows(plan.rows_a_day),
                f"{plan.days} days",
                f"{_rounded(found.written_bytes_per_s / MB)} MB/s",
                _scaled(found.held_bytes, (1_000 * TB, "PB"), (TB, "TB"), (GB, "GB")),
                f"{found.bookies:,}",
                found.asked_by,
                _scaled(found.recovery_s, (3_600, "h"), (60, "min"), (1, "s")),
                f"{found.ledgers:,}",
                _scaled(max(found.zookeeper_bytes, GB), (GB, "GB")),
                *(f"{name}, {_rows(rows)}" for name, rows in (found.first_limit, found.next_limit)),
            ]
        )
    return [f"| {' | '.join(row)} |" for row in table]


def _rows(number: float) -> str:
    return _scaled(number, (10**9, "billion"), (10**6, "million"))


def _scaled(value: float, *units: tuple[float, str]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{_rounded(value / size)} {name}"


def _rounded(value: float) -> str:
    """Two digits that count."""
    return f"{float(f'{value:.2g}'):,.10g}"


PLANS = tuple(Plan(rows_a_day=rows, days=days) for rows in (10**7, 10**8, 10**9, 10**10, 10**11) for days in (7, 90))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description=__doc__)
    parser.add_argument("--rows-a-day", type=int, help="of one plan")
    parser.add_argument("--row-bytes", type=float, default=100, help="as stored: compressed; default %(default)s")
    parser.add_argument("--days", type=int, default=7, help="how long rows are kept; default %(default)s")
    parser.add_argument("--page", type=Path, metavar="FILE", help="where the table is written")
    args = parser.parse_args()
    if min(args.row_bytes, args.days, 1 if args.rows_a_day is None else args.rows_a_day) <= 0:
        parser.error("--rows-a-day, --row-bytes and --days must be above 0")
    if args.page is not None and args.rows_a_day is not None:
        parser.error("--page writes the table of all plans: leave --rows-a-day out")
    one = None if args.rows_a_day is None else Plan(rows_a_day=args.rows_a_day, row_bytes=args.row_bytes, days=args.days)
    found = lines(PLANS if one is None else [one], Machines())
    print("\n".join(found))
    if args.page is not None:
        args.page.write_text(_with_table(args.page.read_text(), found))
    return 0


def _with_table(page: str, table: list[str]) -> str:
    """The page, with this table in place of the first one behind HEADING."""
    page_lines = page.splitlines()
    first = next(place for place in range(page_lines.index(HEADING), len(page_lines)) if page_lines[place].startswith("|"))
    end = next(place for place in range(first, len(page_lines)) if not page_lines[place].startswith("|"))
    return "\n".join([*page_lines[:first], *table, *page_lines[end:]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
