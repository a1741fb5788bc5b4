"""How many slots of a new ensemble each rack gets, and in which order. Pure.

A rack with m slots, as far apart as can be, is in ``min(E, m * Qw)`` of the E write sets, and so is a zone. So each further
slot of a rack adds fewer write sets than the one before. To give the next slot always to a rack for which it adds most leads to
the largest sum (a laminar concave maximum). Slots that add the same go to racks by their numbers of bookies, so that all
bookies get the same load as nearly as the racks allow (systematic sampling).

With striping the order matters too. The circle of slots is cut into as many blocks as a rack has slots that count, and one rack
after the other takes the same slot of each block: its slots are then a write quorum apart. If that is not yet as good as the
sum allows, slots are swapped while that helps.

Worked example, E = 4, Qw = 2, racks a a a b: a first and a second slot of a add two write sets each, so does the first of b, a
third slot of a adds none. The order a b a a has the write sets ab, ba, aa, aa.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from bk_spark.client.protocol.placement.rack_spread import Location, Spread, spread_of

UNIT = 1 << 16
"""Shares of slots are counted in these. A whole number of them is exact."""

ROUNDS = 24
"""Halvings until a rate of slots to bookies is exact to a unit."""

MAX_SWAPS = 200
"""Swaps that are tried for one order."""

T = TypeVar("T")
K = TypeVar("K")

Choose = Callable[[int], int]
"""Gives a random number from 0 to n - 1."""


def slots_of_racks(
    supply: Mapping[Location, int], ensemble_size: int, write_quorum: int, choose: Choose
) -> dict[Location, int]:
    """How many slots each rack gets. ``supply`` has the bookies of each, ``ensemble_size`` of them at least."""
    return _Shares(supply, ensemble_size, write_quorum, choose).all_slots()


def widest(slots: Mapping[Location, int], ensemble_size: int, write_quorum: int) -> Spread:
    """An upper bound for the spread of an ensemble with so many slots of each rack."""
    of_zones: dict[str, int] = {}
    for place, count in slots.items():
        of_zones[place.zone] = of_zones.get(place.zone, 0) + count
    zones, racks = (sum(min(ensemble_size, m * write_quorum) for m in counts) for counts in (of_zones.values(), slots.values()))
    if ensemble_size == write_quorum:
        return Spread(racks // ensemble_size, racks // ensemble_size, zones // ensemble_size, zones // ensemble_size)
    return Spread(racks // ensemble_size, racks, zones // ensemble_size, zones)


def arranged(slots: Mapping[Location, int], write_quorum: int, choose: Choose) -> list[Location]:
    """The racks in the order of their slots."""
    size = sum(slots.values())
    if size == write_quorum:
        return shuffled([place for place, count in slots.items() for _ in range(count)], choose)
    best, most = None, widest(slots, size, write_quorum)
    for blocks in (size // write_quorum, size // write_quorum + 1):
        order = _swapped(_in_blocks(slots, size, blocks, choose), write_quorum, most, choose)
        if best is None or order[0] > best[0]:
            best = order
        if best[0] >= most:
            break
    assert best is not None
    start = choose(size)
    return best[1][start:] + best[1][:start]


def shuffled(items: Sequence[T], choose: Choose) -> list[T]:
    left = list(items)
    return [left.pop(choose(len(left))) for _ in range(len(left))]


def _in_blocks(slots: Mapping[Location, int], size: int, blocks: int, choose: Choose) -> list[Location]:
    """Racks with the most slots first, those of a zone one after the other; the first slot of all blocks, then the second, …"""
    zones: dict[str, int] = {}
    for place, count in slots.items():
        zones[place.zone] = zones.get(place.zone, 0) + count
    places = sorted(shuffled([place for place, count in slots.items() if count], choose), key=lambda one: -slots[one])
    places.sort(key=lambda one: (-zones[one.zone], one.zone))
    in_turn = [place for place in places for _ in range(slots[place])]
    lengths = [size // blocks + (block < size % blocks) for block in range(blocks)]
    starts = [sum(lengths[:block]) for block in range(blocks)]
    where = [starts[block] + step for step in range(max(lengths)) for block in range(blocks) if step < lengths[block]]
    order = list(in_turn)
    for slot, place in zip(where, in_turn, strict=True):
        order[slot] = place
    return order


def _swapped(order: list[Location], write_quorum: int, most: Spread, choose: Choose) -> tuple[Spread, list[Location]]:
    """The order after swaps that widen its spread."""
    spread, size = spread_of(order, write_quorum), len(order)
    for _ in range(MAX_SWAPS):
        if spread >= most:
            break
        one, other = choose(size), choose(size)
        order[one], order[other] = order[other], order[one]
        after = spread_of(order, write_quorum)
        if after >= spread:
            spread = after
        else:
            order[one], order[other] = order[other], order[one]
    return spread, order


class _Shares:
    """Slots are given out in rounds: in each to all racks for which a slot adds most."""

    def __init__(self, supply: Mapping[Location, int], ensemble_size: int, write_quorum: int, choose: Choose) -> None:
        self._supply = {place: count for place, count in supply.items() if count}
        self._size = ensemble_size
        self._quorum = write_quorum
        self._choose = choose
        self._slots = dict.fromkeys(self._supply, 0)
        self._of_zone = {place.zone: 0 for place in self._supply}

    def all_slots(self) -> dict[Location, int]:
        while (left := self._size - sum(self._slots.values())) > 0:
            for place, count in self._round(left).items():
                self._slots[place] += count
                self._of_zone[place.zone] += count
        return {place: count for place, count in self._slots.items() if count}

    def _round(self, left: int) -> dict[Location, int]:
        added = {place: self._added(place) for place in self._supply if self._slots[place] < self._supply[place]}
        most = max(added.values())
        places = sorted((place for place, one in added.items() if one == most), key=lambda place: place.zone)
        room = {place: min(self._supply[place] - self._slots[place], self._room(self._slots[place])) for place in places}
        in_zone = {zone: self._room(self._of_zone[zone]) for zone in {place.zone for place in places}}
        zones = {zone: list(members) for zone, members in groupby(places, key=lambda place: place.zone)}
        rooms = {zone: min(in_zone[zone], sum(room[place] for place in members)) for zone, members in zones.items()}
        of_zones = self._shares(
            {zone: sum(self._supply[one] for one in members) for zone, members in zones.items()},
            {zone: sum(self._slots[one] for one in members) for zone, members in zones.items()},
            rooms,
            min(left, sum(rooms.values())) * UNIT,
        )
        shares: dict[Location, int] = {}
        for zone in shuffled(sorted(zones), self._choose):
            members = shuffled(zones[zone], self._choose)
            shares |= self._shares(
                {one: self._supply[one] for one in members},
                {one: self._slots[one] for one in members},
                {one: room[one] for one in members},
                of_zones[zone],
            )
        return self._sampled(shares)

    def _added(self, place: Location) -> tuple[int, int]:
        return self._worth(self._slots[place]), self._worth(self._of_zone[place.zone])

    def _worth(self, slots: int) -> int:
        """The write sets that one more slot adds."""
        return min(self._size, (slots + 1) * self._quorum) - min(self._size, slots * self._quorum)

    def _room(self, slots: int) -> int:
        """The further slots that are worth as much as the next one."""
        full, rest = divmod(self._size, self._quorum)
        if slots < full:
            return full - slots
        return 1 if slots == full and rest else self._size

    def _shares(self, bookies: Mapping[K, int], before: Mapping[K, int], room: Mapping[K, int], total: int) -> dict[K, int]:
        """``total`` units, so that slots before and now are as near to the numbers of bookies as the room allows."""
        if len(bookies) == 1:
            return dict.fromkeys(bookies, total)
        low, high = 0.0, 1.0
        for _ in range(ROUNDS):
            rate = (low + high) / 2
            if sum(self._share(rate, bookies[one], before[one], room[one]) for one in bookies) < total:
                low = rate
            else:
                high = rate
        shares = {one: self._share(low, bookies[one], before[one], room[one]) for one in bookies}
        missing = total - sum(shares.values())
        for one in bookies:
            more = min(missing, room[one] * UNIT - shares[one])
            shares[one] += more
            missing -= more
        return shares

    @staticmethod
    def _share(rate: float, bookies: int, before: int, room: int) -> int:
        return int(max(0.0, min(room, rate * bookies - before)) * UNIT)

    def _sampled(self, shares: Mapping[K, int]) -> dict[K, int]:
        """Whole numbers, each at most one off its share, with the same sum and the shares as their means."""
        end, found = self._choose(UNIT), {}
        for one, share in shares.items():
            found[one] = (end + share) // UNIT - end // UNIT
            end += share
        return found
