"""Tables of what the scenarios came to, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.simulated_cluster.churn import Spread
from benchmarks.simulated_cluster.cluster import Recovery
from benchmarks.simulated_cluster.recoveries import Loss, Restarted

BAR = 40
"""Characters of the longest bar of a curve."""


def of_recoveries(found: Iterable[tuple[Loss, Recovery]]) -> list[str]:
    heads = [
        *("lost", "bookies", "ledgers", "ledgers hit", "TB lost", "workers"),
        *("limit", "first mark", "all marked", "whole", "copying over limit"),
    ]
    return table(heads, [_recovery(plan, one) for plan, one in found])


def _recovery(plan: Loss, one: Recovery) -> list[str]:
    return [
        *(
            plan.name,
            f"{plan.bookies:,}",
            f"{plan.ledgers:,}",
            f"{one.ledgers:,}",
            number(one.lost_bytes / 1e12),
            f"{one.workers:,}",
        ),
        *(time(one.limit.seconds), time(one.first_mark_s), time(one.marked_s)),
        time(one.whole_s) if one.is_whole else f"not in {time(one.whole_s)}",
        number(one.over_limit),
    ]


def of_means(found: Iterable[tuple[Loss, Recovery]]) -> list[str]:
    heads = [
        *("lost", "requests to ZooKeeper", "for each ledger", "a second", "at most", "ZooKeeper busy"),
        *("busiest worker's core", "load", "space", "worker MiB", "auditor MiB", "copied twice"),
    ]
    return table(heads, [_means(plan, one) for plan, one in found])


def _means(plan: Loss, one: Recovery) -> list[str]:
    requests = sum(one.requests.values())
    return [
        *(plan.name, f"{requests:,}", number(requests / max(1, one.ledgers)), number(one.requests_per_s)),
        *(f"{one.peak_requests_per_s:,}", f"{one.server_busy:.0%}", f"{one.busiest_worker:.0%}"),
        *(f"{one.load_spread:.2f}", f"{one.space_spread:.2f}", number(one.worker_mib), number(one.auditor_mib)),
        f"{max(0, one.copied_ledgers - one.ledgers):,}",
    ]


def of_restarts(found: Mapping[str, Restarted]) -> list[str]:
    heads = ["restarts", "took", "marked in vain", "copied in vain", "read in vain", "marks gone after", "requests a second"]
    rows = [
        [
            *(name, time(one.seconds), f"{one.marked:,}", f"{one.copied_bytes / one.held_bytes:.1%}"),
            *(f"{one.checked_bytes / one.held_bytes:.1%}", time(one.whole_s - one.seconds), number(one.requests_per_s)),
        ]
        for name, one in found.items()
    ]
    return table(heads, rows)


def of_churns(found: Mapping[str, Sequence[Spread]], days: Sequence[int]) -> list[str]:
    heads = ["", "bookies", *(f"day {day}" for day in days), "load", "moved"]
    rows = [
        [
            *(name, f"{spreads[-1].bookies}", *(f"{spreads[day].space:.2f}" for day in days)),
            *(f"{spreads[-1].load:.2f}", f"{spreads[-1].moved_share:.0%}"),
        ]
        for name, spreads in found.items()
    ]
    return table(heads, rows)


def of_hot_logs(found: Mapping[str, Sequence[float]], windows_s: Sequence[int]) -> list[str]:
    heads = ["hot log", *(f"worst {time(window)}" for window in windows_s)]
    return table(heads, [[name, *(f"{one:.2f}" for one in worst)] for name, worst in found.items()])


def curve(points: Sequence[tuple[str, float, float]], of: str) -> list[str]:
    """Bars, with a mark where the limit is. A point has a name, what was reached, and the limit, in seconds."""
    most = max(reached for _, reached, _ in points)
    width = max(len(name) for name, _, _ in points)
    lines = [f"    {of}: # what was reached, | the limit; {BAR} characters are {time(most)}", ""]
    for name, reached, limit in points:
        bar = list("#" * max(1, round(BAR * reached / most)) + " " * BAR)
        bar[min(BAR, round(BAR * limit / most))] = "|"
        lines.append(f"    {name:>{width}}  {''.join(bar).rstrip():<{BAR + 1}}  {time(reached)}, limit {time(limit)}")
    return lines


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def time(seconds: float) -> str:
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
