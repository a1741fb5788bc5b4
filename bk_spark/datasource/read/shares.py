"""How the logs of a stream share the limits of a micro-batch, so that none starves.

In each batch another log is the first. In this order each log gets an equal share of what the logs before it have left, and
takes the entries that fit, possibly none. The first one takes an entry out of all limits if none fits into its share, and
one entry even if that is above the limits, so that each batch makes progress. What is left at last goes to the logs in the
same order, until an entry does not fit.

Worked example, at most 100 rows, entries of 10: logs with 20, 500 and 500 unread rows take 20 of 33, 40 of 40, and 40 of 40.
A log whose entries have 80 rows takes none of these shares, and one entry in each third batch, when it is the first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bk_spark.datasource.read.batch_limits import Admitted, Limits

_Log = TypeVar("_Log")


def share_out(order: Sequence[_Log], limits: Limits, admit: Callable[[_Log, Limits, int], Admitted[Any]]) -> None:
    """Have ``admit`` take the logs' shares of ``limits``: of a log, within limits, and so many entries at least.

    Called again for a log, it goes on behind what it took before.
    """
    cut, left = [], limits
    for place, log in enumerate(order):
        share = left.share(len(order) - place)
        taken = None if share.is_used_up else admit(log, share, 0)
        if place == 0 and (taken is None or taken.is_nothing):
            share, taken = left, admit(log, left, 1)
        if taken is None or taken.is_cut:
            cut.append(log)
        if taken is not None:
            left = left.without(*share.used(taken.left))
    for log in cut:
        if left.is_used_up:
            return
        taken = admit(log, left, 0)
        if taken.is_cut:
            return
        left = taken.left


def in_turn(logs: Sequence[str], last_first: str | None) -> list[str]:
    """The logs in ascending order, from the first one behind ``last_first`` on, round to it."""
    ordered = sorted(logs)
    first = 0 if last_first is None else bisect_right(ordered, last_first)
    return ordered[first:] + ordered[:first]
