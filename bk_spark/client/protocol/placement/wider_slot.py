"""Which copies of a fragment should move, so that its write sets span more racks and zones. Pure.

One copy moves at a time, and only where that strictly widens the spread of all write sets together (``Spread``). The spread of
a fragment has an upper bound, so moving ends. While the rack of one of its bookies is not known nothing is concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bk_spark.client.protocol.placement.choose_bookies import Candidate
from bk_spark.client.protocol.placement.fill_slots import PlacedBookie, Vacancies, fill
from bk_spark.client.protocol.placement.rack_spread import Location, location_of, spread_of

MAX_ANSWERS = 10_000
"""Answers that are kept: ensembles over the same racks have the same one. Some megabytes; beyond it all are forgotten."""


class RackMap:
    """Where the registered bookies are, and which may take copies."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._locations = {one.bookie_id: location_of(one.rack) for one in candidates}
        self._usable = frozenset(one.bookie_id for one in candidates if not one.is_read_only and not one.is_quarantined)
        self._supply = Counter(self._locations[bookie_id] for bookie_id in self._usable)
        self._answers: dict[object, int | None] = {}

    def fewest_racks(self, ensemble: tuple[str, ...], write_quorum: int) -> int | None:
        """The racks of the write set that spans fewest; None while the rack of a bookie is not known."""
        locations = self._known(ensemble)
        return None if locations is None else spread_of(locations, write_quorum).fewest_racks

    def wider_slot(self, ensemble: tuple[str, ...], write_quorum: int) -> int | None:
        """The slot whose bookie should make way for one elsewhere; None if no move of a single copy widens the spread."""
        locations = self._known(ensemble)
        if locations is None:
            return None
        taken = Counter(self._locations[bookie_id] for bookie_id in ensemble if bookie_id in self._usable)
        exhausted = frozenset(location for location in taken if taken[location] == self._supply[location])
        question = (locations, exhausted, write_quorum)
        if question not in self._answers:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[question] = self._answer(locations, exhausted, write_quorum)
        return self._answers[question]

    def _known(self, ensemble: tuple[str, ...]) -> tuple[Location, ...] | None:
        known = tuple(self._locations[bookie_id] for bookie_id in ensemble if bookie_id in self._locations)
        return known if len(known) == len(ensemble) else None

    def _answer(self, locations: tuple[Location, ...], exhausted: frozenset[Location], write_quorum: int) -> int | None:
        """Only where a free bookie is counts, not which one it is."""
        before, slots = spread_of(locations, write_quorum), range(len(locations))
        free = [PlacedBookie("", location) for location in self._supply if location not in exhausted]
        if not free:
            return None
        after = {slot: fill(Vacancies(write_quorum, locations, [slot], free, judged=slots)).spread for slot in slots}
        best = max(slots, key=lambda slot: after[slot])
        return best if after[best] > before else None
