"""Which bookies form an ensemble, and which ones replace those of it that failed. Pure.

A *rack* is what fails as one: a power supply, a switch, a zone. A write set is *spread* if it stands in at least two racks.
With bookies of two racks or more, every write set is spread where that is possible; where it is not, any bookies are
taken, and the answer says so. Quarantined bookies are taken only where there are not enough others.

Racks may be in *zones*: ``/zone-a/rack-1``. Where every write set can stand in two zones it does, and so in two racks. An
ensemble for which that cannot be is spread over racks alone.

An ensemble of E can be spread exactly if no rack has more than ``E * (Qw - 1) // Qw`` of its slots: each bookie of
another rack stands in Qw write sets, and all E of them need one.

Worked example, E = 5, Qw = 2, that is at most 2 of a rack: two racks, A A A B B, cannot do it, three can: A B A B C.

Ref: Apache BookKeeper's RackawareEnsemblePlacementPolicy, with minNumRacksPerWriteQuorum = 2; situation 89.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bk_spark.config import DEFAULT_RACK
from bk_spark.errors import NotEnoughBookiesError
from bk_spark.quorum import write_set

MAX_TRIES = 1000
"""Placements tried for several slots at once: some milliseconds, and every combination of three slots and ten racks."""

T = TypeVar("T", "Ensemble", "Replacements")

Choose = Callable[[int], int]
"""Gives a random number from 0 to n - 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered bookie."""

    bookie_id: str
    rack: str = DEFAULT_RACK
    is_quarantined: bool = False
    is_read_only: bool = False
    """It may stand in an ensemble already, and is chosen for none."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A new ensemble. ``is_spread``: every write set is, or all registered bookies stand in one rack, or Qw is 1."""

    bookies: tuple[str, ...]
    is_spread: bool


@dataclass(frozen=True, slots=True)
class Replacements:
    """Slots, ascending, with their new bookies. ``problem`` says why there are fewer than were asked for.

    ``is_spread`` as for an ensemble, of the write sets that the new bookies belong to.
    """

    bookies: tuple[tuple[int, str], ...]
    is_spread: bool
    problem: NotEnoughBookiesError | None = None


def zone_of(rack: str) -> str:
    """The first part of a rack's name: ``/zone-a`` of ``/zone-a/rack-1``."""
    return "/".join(rack.split("/")[:2])


def choose_ensemble(candidates: Sequence[Candidate], ensemble_size: int, write_quorum: int, choose: Choose) -> Ensemble:
    """``ensemble_size`` distinct writable bookies, at random. Raises NotEnoughBookiesError."""
    return _first_spread(candidates, lambda those: _ensemble(those, ensemble_size, write_quorum, choose))


def choose_replacements(
    candidates: Sequence[Candidate],
    ensemble: tuple[str, ...],
    slots: Iterable[int],
    excluded: frozenset[str],
    *,
    write_quorum: int,
    choose: Choose,
) -> Replacements:
    """Writable bookies for ``slots``, none of them elsewhere in the ensemble or in ``excluded``; as many as there are.

    A slot may get the bookie that it has, if that one is a candidate and not excluded.
    """
    wanted = sorted(set(slots))
    return _first_spread(candidates, lambda those: _replacements(those, ensemble, wanted, excluded, write_quorum, choose))


def _first_spread(candidates: Sequence[Candidate], attempt: Callable[[Sequence[Candidate]], T]) -> T:
    """What comes of an attempt with zones for racks, if that is spread; else of one with racks."""
    zones = [replace(one, rack=zone_of(one.rack)) for one in candidates]
    if zones != list(candidates) and len({one.rack for one in zones}) > 1:
        found = attempt(zones)
        if found.is_spread:
            return found
    return attempt(candidates)


def _ensemble(candidates: Sequence[Candidate], ensemble_size: int, write_quorum: int, choose: Choose) -> Ensemble:
    usable = _usable(candidates, ensemble_size)
    if len(usable) < ensemble_size:
        purpose = f"a ledger with ensemble size {ensemble_size}"
        raise NotEnoughBookiesError(ensemble_size, len(usable), purpose, sum(one.is_read_only for one in candidates))
    chosen = _pick(_in_preferred_order(usable, choose), ensemble_size, ensemble_size * (write_quorum - 1) // write_quorum)
    ensemble = _arrange(chosen, choose)
    racks = dict(enumerate(one.rack for one in ensemble))
    is_spread = not _can_spread(candidates, write_quorum) or _flaws(racks, ensemble_size, write_quorum, racks) == 0
    return Ensemble(tuple(one.bookie_id for one in ensemble), is_spread)


def _replacements(
    candidates: Sequence[Candidate],
    ensemble: tuple[str, ...],
    wanted: Sequence[int],
    excluded: frozenset[str],
    write_quorum: int,
    choose: Choose,
) -> Replacements:
    kept = {bookie_id for slot, bookie_id in enumerate(ensemble) if slot not in wanted}
    usable = _usable([one for one in candidates if one.bookie_id not in excluded | kept], len(wanted))
    racks = {one.bookie_id: one.rack for one in candidates}
    settled = {slot: racks.get(bookie_id) for slot, bookie_id in enumerate(ensemble) if slot not in wanted}
    filling = _Filling(ensemble, write_quorum, _in_preferred_order(usable, choose), settled)
    found = filling.fill(wanted)
    after = settled | {slot: racks.get(found.get(slot, ensemble[slot])) for slot in wanted}
    is_spread = not _can_spread(candidates, write_quorum) or _flaws(after, len(ensemble), write_quorum, found) == 0
    problem = None
    if len(found) < len(wanted):
        problem = NotEnoughBookiesError(len(wanted), len(found), f"the replacement of {len(wanted)} bookies of an ensemble")
    return Replacements(tuple(sorted(found.items())), is_spread, problem)


def _usable(candidates: Iterable[Candidate], needed: int) -> list[Candidate]:
    """The writable candidates, by id; without those in quarantine if the others are enough."""
    writable = {one.bookie_id: one for one in candidates if not one.is_read_only}
    healthy = {bookie_id: one for bookie_id, one in writable.items() if not one.is_quarantined}
    usable = healthy if len(healthy) >= needed else writable
    return [usable[bookie_id] for bookie_id in sorted(usable)]


def _in_preferred_order(usable: list[Candidate], choose: Choose) -> list[Candidate]:
    """In random order, those in quarantine last."""
    left = list(usable)
    shuffled = [left.pop(choose(len(left))) for _ in range(len(left))]
    return sorted(shuffled, key=lambda one: one.is_quarantined)


def _pick(preferred: list[Candidate], count: int, most_of_a_rack: int) -> list[Candidate]:
    """The first ``count``; what would be too many of one rack only after all others."""
    taken: Counter[str] = Counter()
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    for one in preferred:
        (within if taken[one.rack] < most_of_a_rack else beyond).append(one)
        taken[one.rack] += 1
    return (within + beyond)[:count]


def _arrange(chosen: list[Candidate], choose: Choose) -> list[Candidate]:
    """The bookies in their slots, those of a rack as far apart as possible, from a random slot on."""
    counts = Counter(one.rack for one in chosen)
    racks = sorted(counts, key=lambda rack: -counts[rack])
    by_rack = [one for rack in racks for one in chosen if one.rack == rack]
    start = choose(len(chosen))
    placed = {
        (start + slot) % len(chosen): one for slot, one in zip(_slot_order(len(chosen), counts[racks[0]]), by_rack, strict=True)
    }
    return [placed[slot] for slot in range(len(chosen))]


def _slot_order(size: int, largest: int) -> list[int]:
    """In which order slots are taken by racks, the one with most bookies, ``largest``, first.

    If that is at most half of all: every other slot, and then those between, so that no neighbours share a rack.
    Otherwise the bookies of all other racks stand at even distances, which no write set steps over if any order does it.
    """
    if 2 * largest <= size:
        return [*range(0, size, 2), *range(1, size, 2)]
    others = size - largest
    between = [index * size // others for index in range(others)]
    return [slot for slot in range(size) if slot not in between] + between


def _can_spread(candidates: Sequence[Candidate], write_quorum: int) -> bool:
    return write_quorum > 1 and len({one.rack for one in candidates}) > 1


def _flaws(racks: Mapping[int, str | None], ensemble_size: int, write_quorum: int, slots: Iterable[int]) -> int:
    """How many write sets that hold one of ``slots`` stand in one rack. An unknown rack, None, is no second one.

    A write set with a slot that is not in ``racks`` is not complete, and not counted.
    """
    first_ids = {(slot - k) % ensemble_size for slot in slots for k in range(write_quorum)}
    write_sets = [write_set(entry_id, ensemble_size, write_quorum) for entry_id in sorted(first_ids)]
    complete = [members for members in write_sets if all(slot in racks for slot in members)]
    return sum(len({racks[slot] for slot in members} - {None}) < 2 for members in complete)


class _Filling:
    """The search for bookies for some slots of an ensemble, with all write sets spread if it finds that."""

    def __init__(
        self, ensemble: tuple[str, ...], write_quorum: int, preferred: list[Candidate], settled: Mapping[int, str | None]
    ) -> None:
        """``settled`` are the racks of the slots that stay."""
        self._ensemble = ensemble
        self._write_quorum = write_quorum
        self._preferred = preferred
        self._racks = dict(settled)
        self._taken: set[str] = set()
        self._tries = 0

    def fill(self, slots: Sequence[int]) -> dict[int, str]:
        """Slots that can keep their own bookie come last: then the others find enough, if there are enough."""
        ids = {one.bookie_id for one in self._preferred}
        order = sorted(slots, key=lambda slot: self._ensemble[slot] in ids)
        spread = self._search(order) if len(ids) >= len(slots) else None
        return spread if spread is not None else self._nearest(order)

    def _search(self, slots: Sequence[int]) -> dict[int, str] | None:
        """Of bookies that make no difference for the racks one is tried, the preferred one."""
        if not slots:
            return {}
        slot, *rest = slots
        seen = set()
        for one in self._options(slot):
            kind = (one.rack, one.bookie_id == self._ensemble[slot])
            if kind in seen or self._tries >= MAX_TRIES:
                continue
            seen.add(kind)
            self._tries += 1
            self._take(slot, one)
            found = self._search(rest) if self._flaws(slot) == 0 else None
            if found is not None:
                return {slot: one.bookie_id, **found}
            self._give_back(slot, one)
        return None

    def _nearest(self, slots: Sequence[int]) -> dict[int, str]:
        """For each slot in turn the bookie with which the fewest write sets stand in one rack."""
        found = {}
        for slot in slots:
            options = self._options(slot)
            if options:
                best = min(options, key=lambda one: self._flaws_with(slot, one))
                self._take(slot, best)
                found[slot] = best.bookie_id
        return found

    def _options(self, slot: int) -> list[Candidate]:
        """In the order of preference."""
        elsewhere = self._taken | set(self._ensemble) - {self._ensemble[slot]}
        return [one for one in self._preferred if one.bookie_id not in elsewhere]

    def _flaws_with(self, slot: int, one: Candidate) -> int:
        self._take(slot, one)
        flaws = self._flaws(slot)
        self._give_back(slot, one)
        return flaws

    def _flaws(self, slot: int) -> int:
        return _flaws(self._racks, len(self._ensemble), self._write_quorum, [slot]) if self._write_quorum > 1 else 0

    def _take(self, slot: int, one: Candidate) -> None:
        self._racks[slot] = one.rack
        self._taken.add(one.bookie_id)

    def _give_back(self, slot: int, one: Candidate) -> None:
        del self._racks[slot]
        self._taken.remove(one.bookie_id)


# --- Which bookies fail so often that new ensembles do without them for a while. Pure
#
# A bookie that fails ``errors`` requests within ``period_ms`` is out for ``period_ms``. What it fails meanwhile, to handles
# that use it still, is not counted: it returns for certain, and is out again after as many new failures.
#
# Worked example, 3 failures within 60 s: failures at 0, 30 and 50 s put it out from 50 to 110 s; at 0, 30 and 70 s they do not.
#
# Ref: Apache BookKeeper's bookie health check; situation 21.

MAX_BOOKIES = 1000
"""Bookies remembered; beyond it the one whose last counted failure is the oldest is forgotten. More than clusters have."""


@dataclass(slots=True)
class _Record:
    failed_ms: list[int] = field(default_factory=list)
    """The failures of the last period, ascending; with the last of ``errors`` it is out until they are older."""
    out_until_ms: int | None = None


class Quarantine:
    """The failures of a client's bookies. Times are of one clock that never goes back."""

    def __init__(self, errors: int, period_ms: int) -> None:
        self._errors = errors
        self._period_ms = period_ms
        self._records: dict[str, _Record] = {}

    def report(self, bookie_id: str, now_ms: int) -> bool:
        """Count a failure; gives back whether it is this one that puts the bookie out."""
        record = self._records.pop(bookie_id, None) or _Record()
        self._records[bookie_id] = record
        if len(self._records) > MAX_BOOKIES:
            del self._records[next(iter(self._records))]
        if self._is_out(record, now_ms):
            return False
        record.failed_ms = [one for one in record.failed_ms if one > now_ms - self._period_ms] + [now_ms]
        if len(record.failed_ms) < self._errors:
            return False
        record.out_until_ms = now_ms + self._period_ms
        return True

    def bookies(self, now_ms: int) -> frozenset[str]:
        """Those that are out."""
        return frozenset(bookie_id for bookie_id, record in self._records.items() if self._is_out(record, now_ms))

    def _is_out(self, record: _Record, now_ms: int) -> bool:
        return record.out_until_ms is not None and now_ms < record.out_until_ms
