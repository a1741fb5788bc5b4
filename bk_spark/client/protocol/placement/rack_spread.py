"""How many racks and zones the write sets of an ensemble span. Pure.

A *rack* is what fails as one: a power supply, a switch. Racks may be in *zones*: ``/zone-a/rack-1``. The more of them a write
set spans, the more may fail at once. ``Spread`` compares ensembles: racks count before zones, and the write set that spans
fewest before the sum over all write sets.

Worked example, Qw = 2, racks a a b c: the write sets are aa, ab, bc and ca. The fewest racks are 1, the sum is 7. With a b a c
the write sets are ab, ba, ac and ca: 2, and 8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from bk_spark.quorum import write_set


class Location(NamedTuple):
    """Where a bookie is. ``rack`` is the whole name, with the zone in it."""

    zone: str
    rack: str


MAX_KNOWN = 4_096
"""Racks whose place is remembered: each choice among a thousand bookies asks for those of all."""


class Spread(NamedTuple):
    """Over some write sets: the greater, the better."""

    fewest_racks: int
    """Of any write set."""
    racks: int
    """The sum over the write sets."""
    fewest_zones: int
    zones: int

    def keeps(self, before: Spread) -> bool:
        """Whether nothing spans less than before: more racks do not make up for fewer zones."""
        return all(now >= then for now, then in zip(self, before, strict=True))


@lru_cache(maxsize=MAX_KNOWN)
def location_of(rack: str) -> Location:
    """The zone is the first part of the rack's name: ``/zone-a`` of ``/zone-a/rack-1``."""
    return Location("/".join(rack.split("/")[:2]), rack)


def spread_of(places: Sequence[Location | None], write_quorum: int, slots: Iterable[int] | None = None) -> Spread:
    """The spread of the write sets that have one of ``slots``; by default of all.

    None is a place that is not known: it counts as no rack, so nothing relies on it.
    """
    write_sets = write_sets_with(range(len(places)) if slots is None else slots, len(places), write_quorum)
    known = [{place for slot in members if (place := places[slot]) is not None} for members in write_sets]
    return summed([len(one) for one in known], [len({place.zone for place in one}) for one in known])


def summed(racks: Collection[int], zones: Collection[int]) -> Spread:
    """The spread of write sets that span so many."""
    return Spread(min(racks, default=0), sum(racks), min(zones, default=0), sum(zones))


def write_sets_with(slots: Iterable[int], ensemble_size: int, write_quorum: int) -> list[tuple[int, ...]]:
    """The write sets that have one of ``slots``. Where every entry is on every bookie there is a single one."""
    if ensemble_size == write_quorum:
        return [tuple(range(ensemble_size))]
    first_ids = {(slot - k) % ensemble_size for slot in slots for k in range(write_quorum)}
    return [write_set(first_id, ensemble_size, write_quorum) for first_id in sorted(first_ids)]
