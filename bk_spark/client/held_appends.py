"""Appends whose entry ids the application chose, until those before them have come.

Worked example: entries up to 4 came; 6–7 is held, 5 goes through and takes 6–7 with it; then 7 is a duplicate.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.client.operation import Append


class HeldAppends:
    """Bounded by the writer's window: what is held was let into it."""

    def __init__(self) -> None:
        self._held: dict[int, Append] = {}

    def hold(self, append: Append) -> None:
        """Keep an append beyond a gap, which overlaps none that is held."""
        assert append.first_entry_id is not None
        self._held[append.first_entry_id] = append

    def overlap(self, append: Append) -> int | None:
        """The lowest id of ``append`` that is held already; None if there is none."""
        assert append.first_entry_id is not None
        first, last = append.first_entry_id, _last(append)
        others = [(other_first, _last(other)) for other_first, other in self._held.items()]
        return min((max(first, start) for start, end in others if start <= last and first <= end), default=None)

    def take(self, entry_id: int) -> Append | None:
        """The append that starts at ``entry_id``, which is next."""
        return self._held.pop(entry_id, None)

    def take_all(self) -> Iterator[Append]:
        """Those that will never go out, by their ids."""
        held, self._held = self._held, {}
        return iter([held[first] for first in sorted(held)])


def _last(append: Append) -> int:
    assert append.first_entry_id is not None
    return append.first_entry_id + len(append.payloads) - 1
