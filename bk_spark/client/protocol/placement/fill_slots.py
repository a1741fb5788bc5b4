"""Which bookies take some slots of an ensemble, so that its write sets span as many racks and zones as they can. Pure.

A search gives each slot in turn the bookie that promises the widest spread, and tries the others only while an upper bound says
that they may lead to a wider one (branch and bound). So the first attempt is nearly always the last. Bookies that come to the
same are tried once: the most preferred of them. Where striping leaves much to try, the search ends after ``MAX_LOOKS``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bk_spark.client.protocol.placement.rack_spread import Location, Spread, summed, write_sets_with

MAX_LOOKS = 5_000
"""Write sets that one search looks at: some 50 ms. Ensembles of up to six slots, over four racks, take fewer."""


@dataclass(frozen=True, slots=True)
class PlacedBookie:
    """A bookie that may take a slot."""

    bookie_id: str
    place: Location


@dataclass(frozen=True, slots=True)
class Vacancies:
    """An ensemble with slots to fill."""

    write_quorum: int
    places: Sequence[Location | None]
    """Of the bookies that are in the slots now, as far as they are known."""
    slots: Sequence[int]
    """The slots to fill."""
    free: Sequence[PlacedBookie]
    """The bookies for any slot, the most preferred first."""
    own: Mapping[int, PlacedBookie] = field(default_factory=dict)
    """Slots whose own bookie may take them again."""
    judged: Sequence[int] | None = None
    """The spread is that of the write sets with one of these slots; by default of ``slots``."""


@dataclass(frozen=True, slots=True)
class Filling:
    """Slots, each with its bookie; as many as can be filled. ``spread`` is that of the write sets with one of the slots."""

    bookies: Mapping[int, PlacedBookie]
    spread: Spread


class _Stock:
    """The free bookies that are left. What is taken is put back in the reverse order."""

    def __init__(self, free: Sequence[PlacedBookie]) -> None:
        self._of = defaultdict[Location, list[tuple[int, PlacedBookie]]](list)
        self._zones = defaultdict[str, list[Location]](list)
        for rank, option in enumerate(free):
            if option.place not in self._of:
                self._zones[option.place.zone].append(option.place)
            self._of[option.place].append((rank, option))
        self._left = {place: len(options) for place, options in self._of.items()}

    def next(self) -> list[PlacedBookie]:
        """Of each place the most preferred bookie, in the order of preference."""
        ahead = [options[-self._left[place]] for place, options in self._of.items() if self._left[place]]
        return [option for _, option in sorted(ahead, key=lambda one: one[0])]

    def take(self, place: Location, count: int = 1) -> None:
        self._left[place] -= count

    def left_of(self, place: Location, most: int) -> int:
        return min(self._left[place], most)

    def left_in(self, zone: str, most: int) -> tuple[int, ...]:
        """Of each of the zone's racks, the largest first."""
        return tuple(
            sorted((self.left_of(place, most) for place in self._zones[zone] if self._left[place]), reverse=True)[:most]
        )


def fill(vacancies: Vacancies, known: Filling | None = None, most: Spread | None = None) -> Filling:
    """The filling with the widest spread. ``known``: one that is to be surpassed; ``most``: an upper bound."""
    return _Search(vacancies, known, most).run()


class _Search:
    def __init__(self, vacancies: Vacancies, known: Filling | None, most: Spread | None) -> None:
        self._own = vacancies.own
        # Slots that can keep their own bookie come last, so that the others get a bookie if there are enough.
        self._order = sorted(vacancies.slots, key=lambda slot: slot in vacancies.own)
        self._stock = _Stock(vacancies.free)
        self._vacant = max(0, len(vacancies.slots) - len(vacancies.own) - len(vacancies.free))
        """Slots that stay as they are, for want of bookies."""
        self._before = vacancies.places
        self._places = list(vacancies.places)
        self._open = set(self._order)
        judged = vacancies.slots if vacancies.judged is None else vacancies.judged
        self._write_sets = write_sets_with(judged, len(vacancies.places), vacancies.write_quorum)
        self._racks = {one.place for one in (*vacancies.free, *vacancies.own.values())}
        self._racks.update(place for slot in self._order if (place := vacancies.places[slot]) is not None)
        self._zones = {place.zone for place in self._racks}
        self._taken: dict[int, PlacedBookie] = {}
        self._best = known
        self._looks = 0
        self._most = most or self._bound()

    def run(self) -> Filling:
        if self._best is None or self._best.spread < self._most:
            self._try(0)
        assert self._best is not None
        return self._best

    def _try(self, index: int) -> bool:
        """Try what may be done with the slots from ``index`` on. Returns whether the search is over."""
        if index == len(self._order):
            found = Filling(dict(self._taken), self._bound())
            if self._best is None or found.spread > self._best.spread:
                self._best = found
            return self._is_over()
        slot = self._order[index]
        options = [(self._promise(slot, option), option) for option in self._options(slot, len(self._order) - index)]
        for promise, option in sorted(options, key=lambda one: one[0], reverse=True):
            if self._best is not None and promise <= self._best.spread:
                break
            self._take(slot, option)
            is_over = self._try(index + 1)
            self._put_back(slot, option)
            if is_over or self._is_over():
                return True
        return False

    def _is_over(self) -> bool:
        return self._best is not None and (self._best.spread >= self._most or self._looks >= MAX_LOOKS)

    def _options(self, slot: int, left: int) -> list[PlacedBookie | None]:
        """The most preferred bookie of each kind; None leaves the slot as it is."""
        used = {one for number, one in enumerate(self._places) if one is not None and number not in self._open}
        used.update(one.place for number, one in self._own.items() if number in self._open)
        zones = {one.zone for one in used}
        kinds: dict[object, PlacedBookie | None] = {}
        for option in self._stock.next():
            kinds.setdefault(self._kind(option.place, used, zones, left), option)
        if slot in self._own:
            kinds["own"] = self._own[slot]
        elif self._vacant:
            kinds["none"] = None
        return list(kinds.values())

    def _kind(self, place: Location, used: Collection[Location], zones: Collection[str], left: int) -> object:
        """Places of one kind are the same to the slots that are left to fill."""
        if place in used:
            return place
        zone = place.zone if place.zone in zones else self._stock.left_in(place.zone, left)
        return zone, self._stock.left_of(place, left)

    def _promise(self, slot: int, option: PlacedBookie | None) -> Spread:
        self._take(slot, option)
        bound = self._bound()
        self._put_back(slot, option)
        return bound

    def _take(self, slot: int, option: PlacedBookie | None) -> None:
        self._open.discard(slot)
        if option is None:
            self._vacant -= 1
            return
        self._places[slot], self._taken[slot] = option.place, option
        if option is not self._own.get(slot):
            self._stock.take(option.place)

    def _put_back(self, slot: int, option: PlacedBookie | None) -> None:
        self._open.add(slot)
        if option is None:
            self._vacant += 1
            return
        self._places[slot] = self._before[slot]
        del self._taken[slot]
        if option is not self._own.get(slot):
            self._stock.take(option.place, -1)

    def _bound(self) -> Spread:
        """No filling of the open slots has a wider spread; without open slots it is the spread."""
        self._looks += len(self._write_sets)
        zones, racks = [], []
        for members in self._write_sets:
            is_open = sum(slot in self._open for slot in members)
            spanned = {place for slot in members if slot not in self._open and (place := self._places[slot]) is not None}
            spanned_zones = {place.zone for place in spanned}
            racks.append(len(spanned) + min(is_open, len(self._racks - spanned)))
            zones.append(len(spanned_zones) + min(is_open, len(self._zones - spanned_zones)))
        return summed(racks, zones)
