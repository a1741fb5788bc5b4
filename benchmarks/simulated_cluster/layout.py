"""Bookies in racks and zones, and the ensembles of many ledgers, from samples of the shipped placement.

Placement has no memory: each new ledger's ensemble is drawn anew from the same bookies. It treats all bookies of a rack
alike, and so all racks of a zone with equally many bookies, and all zones that are made of such racks. So a million ledgers
need no million choices: some thousand ensembles are chosen, only their racks are kept, these change places with their equals,
and the bookies of each rack are drawn evenly. Samples of one layout then miss nothing but rare kinds of ensembles. A test
compares both ways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from benchmarks.simulated_cluster.ledger_table import Ensembles
from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_ensemble
from bk_spark.client.protocol.placement.rack_spread import location_of
from bk_spark.metadata.registration import BookieAddress, RegisteredBookie

SAMPLES = 300
"""Ensembles that the shipped placement chooses for one layout."""

GROUPS = 64
"""So often racks change places with their equals: the sampled racks are as evenly loaded as so many times more samples."""


def bookie_name(number: int) -> str:
    return f"bookie-{number:04d}:3181"


def laid_out(count: int, racks: int = 1, zones: int = 1, first: int = 0) -> list[RegisteredBookie]:
    """Bookies in turn over racks, and racks in turn over zones."""
    return [registered(number, number % racks, (number % racks) % zones) for number in range(first, first + count)]


def registered(number: int, rack: int, zone: int = 0) -> RegisteredBookie:
    name = bookie_name(number)
    address = BookieAddress(name, name.partition(":")[0], 3181, rack=f"/zone-{zone}/rack-{rack}")
    return RegisteredBookie(name, address, read_only=False)


def drawn_ensembles(bookies: Sequence[RegisteredBookie], size: int, count: int, seed: int, samples: int = SAMPLES) -> Ensembles:
    """Numbers of ``bookies`` (their places in the sequence): a row for each of ``count`` ledgers with E = Qw = ``size``."""
    random, rng = Random(seed), np.random.default_rng(seed)
    of_rack = _numbers_of_racks(bookies)
    racks = list(of_rack)
    places = _sampled_racks(bookies, size, min(samples, count), random, racks)
    sizes = np.array([len(of_rack[rack]) for rack in racks])
    members = np.zeros((len(racks), sizes.max()), dtype=np.int16)
    for index, rack in enumerate(racks):
        members[index, : len(of_rack[rack])] = of_rack[rack]
    chosen = np.empty((count, size), dtype=np.int16)
    for rows in np.array_split(np.arange(count), GROUPS):
        exchanged = np.array(_exchanged(racks, of_rack, random))[places]
        of_ledgers = exchanged[rng.integers(0, len(places), len(rows))]
        chosen[rows] = _members(members, sizes, of_ledgers, rng)
    return chosen


def _numbers_of_racks(bookies: Sequence[RegisteredBookie]) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    for number, bookie in enumerate(bookies):
        found[bookie.rack].append(number)
    return dict(sorted(found.items()))


def _sampled_racks(
    bookies: Sequence[RegisteredBookie], size: int, samples: int, random: Random, racks: list[str]
) -> npt.NDArray[np.int64]:
    candidates = [Candidate(bookie.bookie_id, bookie.rack) for bookie in bookies]
    rack_of = {bookie.bookie_id: racks.index(bookie.rack) for bookie in bookies}
    chosen = [choose_ensemble(candidates, size, Terms(size), random.randrange).bookies for _ in range(samples)]
    return np.array([[rack_of[one] for one in ensemble] for ensemble in chosen])


def _exchanged(racks: list[str], of_rack: dict[str, list[int]], random: Random) -> list[int]:
    """For each rack the index of one that takes its place."""
    zones = defaultdict[str, list[str]](list)
    for rack in sorted(racks, key=lambda one: (len(of_rack[one]), one)):
        zones[location_of(rack).zone].append(rack)
    alike = defaultdict[tuple[int, ...], list[str]](list)
    for zone, members in zones.items():
        alike[tuple(len(of_rack[one]) for one in members)].append(zone)
    place = {rack: index for index, rack in enumerate(racks)}
    found = [0] * len(racks)
    for group in alike.values():
        for zone, other in zip(group, random.sample(group, len(group)), strict=True):
            equals = sorted(zones[other], key=lambda one: (len(of_rack[one]), random.random()))
            for rack, taken in zip(zones[zone], equals, strict=True):
                found[place[rack]] = place[taken]
    return found


def _members(
    members: Ensembles, sizes: npt.NDArray[np.int64], places: npt.NDArray[np.int64], rng: np.random.Generator
) -> Ensembles:
    """Different bookies of the given racks."""
    drawn = (rng.random(places.shape) * sizes[places]).astype(np.int64)
    chosen = members[places, drawn]
    while True:
        ordered = np.sort(chosen, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(twice):
            return chosen
        again = places[twice]
        chosen[twice] = members[again, (rng.random(again.shape) * sizes[again]).astype(np.int64)]
