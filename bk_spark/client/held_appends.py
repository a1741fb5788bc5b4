"""Appends whose entry ids the application chose, until those before them have come.

Worked example: entries up to 4 came; 6–7 is held, 5 goes through and takes 6–7 with it; then 7 is a duplicate.

What a filled gap sets free goes out in few large batches: it may be a whole window of single entries, and one request each
would keep healthy bookies busy beyond the add timeout.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from bk_spark.client.operation import Append
from bk_spark.config import MAX_BATCH_ENTRIES, MIB

RUN_BYTES = 1 * MIB
"""Payload bytes that go out as one batch: larger ones gain nothing measurable."""


class HeldAppends:
    """Bounded by the writer's window: what is held was let into it."""

    def __init__(self) -> None:
        self._held: dict[int, Append] = {}
        self._firsts: list[int] = []
        """The first ids of what is held, ascending."""

    def hold(self, append: Append) -> None:
        """Keep an append beyond a gap, which overlaps none that is held."""
        self._held[_first(append)] = append
        insort(self._firsts, _first(append))

    def overlap(self, append: Append) -> int | None:
        """The lowest id of ``append`` that is held already; None if there is none."""
        first = _first(append)
        after = bisect_right(self._firsts, first)
        if after > 0 and first <= _last(self._held[self._firsts[after - 1]]):
            return first
        return self._firsts[after] if after < len(self._firsts) and self._firsts[after] <= _last(append) else None

    def take(self, entry_id: int) -> list[Append]:
        """The appends from ``entry_id`` on, which is next, without a gap, as many as make a batch; none if it is missing."""
        run: list[Append] = []
        count = nbytes = 0
        while (append := self._held.get(entry_id + count)) is not None:
            count, nbytes = count + len(append.payloads), nbytes + append.payloads.nbytes
            if run and (count > MAX_BATCH_ENTRIES or nbytes > RUN_BYTES):
                break
            run.append(append)
        for append in run:
            del self._held[_first(append)]
        del self._firsts[: len(run)]
        return run

    def take_all(self) -> Iterator[Append]:
        """Those that will never go out, by their ids."""
        held, firsts = self._held, self._firsts
        self._held, self._firsts = {}, []
        return iter([held[first] for first in firsts])


def _first(append: Append) -> int:
    assert append.first_entry_id is not None
    return append.first_entry_id


def _last(append: Append) -> int:
    return _first(append) + len(append.payloads) - 1
