"""The scenarios, in groups, at full size and small: what docs/scale.md shows."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.simulated_cluster.churn import Churn
from benchmarks.simulated_cluster.hot_log import HotLog
from benchmarks.simulated_cluster.recoveries import Loss, Restarts

MB = 10**6


def sizes(*, small: bool) -> list[Loss]:
    """One bookie of more and more, each as full as the others."""
    counts = (10, 30) if small else (10, 30, 100, 300, 1_000)
    per_bookie = 30 if small else 3_000
    return [
        Loss(
            name=f"1 of {count:,}",
            bookies=count,
            racks=max(5, count // 20),
            ledgers=count * per_bookie // 3,
            gb_each=40.0 if small else 4_000.0,
        )
        for count in counts
    ]


def many_ledgers(*, small: bool) -> list[Loss]:
    """The same bytes in more and more ledgers."""
    bookies = 20 if small else 1_000
    counts = (200, 2_000) if small else (100_000, 1_000_000, 10_000_000)
    return [
        Loss(
            name=f"{count:,} ledgers",
            bookies=bookies,
            racks=max(5, bookies // 20),
            ledgers=count,
            gb_each=40.0 if small else 4_000.0,
        )
        for count in counts
    ]


def workers(*, small: bool) -> list[Loss]:
    """More and more workers beside one hundred bookies."""
    bookies, ledgers = (20, 400) if small else (100, 100_000)
    counts = (1, 5, 19) if small else (1, 3, 10, 30, 99)
    return [
        Loss(
            name=f"{count} workers",
            bookies=bookies,
            racks=10,
            ledgers=ledgers,
            workers=count,
            gb_each=40.0 if small else 4_000.0,
        )
        for count in counts
    ]


def larger_losses(*, small: bool) -> list[Loss]:
    """A rack, a zone, and a bookie while another one is slow."""
    bookies, ledgers, gb_each = (18, 300, 40.0) if small else (99, 30_000, 4_000.0)
    return [
        Loss(name="a bookie", bookies=bookies, racks=9, zones=3, ledgers=ledgers, gb_each=gb_each),
        Loss(name="a rack of 9", bookies=bookies, racks=9, zones=3, ledgers=ledgers, gb_each=gb_each, lost="rack"),
        Loss(name="a zone of 3", bookies=bookies, racks=9, zones=3, ledgers=ledgers, gb_each=gb_each, lost="zone"),
        Loss(name="a bookie, one is slow", bookies=bookies, racks=9, zones=3, ledgers=ledgers, gb_each=gb_each, slow=1),
    ]


def restarts(*, small: bool) -> list[Restarts]:
    bookies, ledgers, gb_each = (10, 100, 4.0) if small else (100, 10_000, 4_000.0)
    one = Restarts(name="one at a time", bookies=bookies, racks=5, ledgers=ledgers, gb_each=gb_each)
    two = Restarts(name="two at a time", bookies=bookies, racks=5, ledgers=ledgers, gb_each=gb_each, at_once=2)
    return [one, two]


def churns(*, small: bool) -> dict[str, Churn]:
    bookies, ledgers = (20, 4_000) if small else (100, 100_000)
    days = 10 if small else 30
    lost, added = {2: 1, days // 2: 1, days - 4: 1}, {4: bookies // 20, days // 2 + 1: bookies // 20}
    doubled = {3: bookies // 4, days // 3: bookies // 4}
    month = Churn(bookies=bookies, racks=10, ledgers=ledgers, days=days, lost=lost, added=added)
    half = Churn(bookies=bookies // 2, racks=10, ledgers=ledgers, days=days, added=doubled)
    balanced = 0.03 if not small else 0.1
    return {
        "three lost, a tenth more": month,
        "three lost, a tenth more, balanced": _balanced(month, balanced),
        "twice as many bookies": half,
        "twice as many bookies, balanced": _balanced(half, balanced),
    }


def _balanced(plan: Churn, share: float) -> Churn:
    return replace(plan, balance_share=share)


WINDOWS_S = (60, 600, 3_600)


def hot_logs() -> dict[str, HotLog]:
    rate, share = 200.0 * MB, 0.2
    return {
        "rolls of 1 GB, one ledger at a time": HotLog(bytes_per_s=rate, share=share, roll_bytes=1_000 * MB),
        "rolls of 10 GB": HotLog(bytes_per_s=rate, share=share, roll_bytes=10_000 * MB),
        "rolls of 1 GB, 10 lanes": HotLog(bytes_per_s=rate, share=share, roll_bytes=1_000 * MB, lanes=10),
        "rolls of 1 GB, striped over 10": HotLog(bytes_per_s=rate, share=share, roll_bytes=1_000 * MB, ensemble_size=10),
    }
