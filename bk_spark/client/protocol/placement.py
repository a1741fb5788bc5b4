"""Which bookies form an ensemble, which ones replace its failed bookies, and which bookies to do without for a while. Pure.

A *rack* is what fails as one: a power supply, a switch, a zone. A write set is *spread* if its bookies are in at least two
racks. If the registered bookies are in two racks or more, every write set is spread if that is possible; otherwise any bookies
are chosen, and the answer says so. Quarantined bookies are chosen only if there are not enough others.

Racks may be in *zones*: ``/zone-a/rack-1``. If possible, every write set is spread over two zones, and so over two racks; if
not, over racks alone.

An ensemble of E can be spread exactly if no rack has more than ``E * (Qw - 1) // Qw`` of its slots: every write set needs a
bookie of another rack, there are E write sets, and each bookie is in Qw of them.

Worked example, E = 5, Qw = 2, so at most 2 of a rack: two racks, A A A B B, cannot do it, three can: A B A B C.

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

MAX_BOOKIES = 1000
"""Bookies that a quarantine remembers, more than clusters have. Beyond it the one with the oldest last failure is forgotten."""

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
    """It may be in an ensemble already, but is not chosen for a new one."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A new ensemble. ``is_spread``: every write set is spread, or all registered bookies are in one rack, or Qw is 1."""

    bookies: tuple[str, ...]
    is_spread: bool


@dataclass(frozen=True, slots=True)
class Replacements:
    """Slots, ascending, with their new bookies. ``problem`` says why there are fewer than were asked for.

    ``is_spread`` is as for an ensemble, but only for the write sets of the new bookies.
    """

    bookies: tuple[tuple[int, str], ...]
    is_spread: bool
    problem: NotEnoughBookiesError | None = None


def zone_of(rack: str) -> str:
    """The first part of a rack's name: ``/zone-a`` of ``/zone-a/rack-1``."""
    return "/".join(rack.split("/")[:2])


def choose_ensemble(candidates: Sequence[Candidate], ensemble_size: int, write_quorum: int, choose: Choose) -> Ensemble:
    """Choose ``ensemble_size`` distinct writable bookies at random. Raises NotEnoughBookiesError."""
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
    """Choose writable bookies for as many of ``slots`` as possible; none is in ``excluded`` or elsewhere in the ensemble.

    A slot may get its own bookie again, if that is a candidate and not excluded.
    """
    wanted = sorted(set(slots))
    return _first_spread(candidates, lambda those: _replacements(those, ensemble, wanted, excluded, write_quorum, choose))


def _first_spread(candidates: Sequence[Candidate], attempt: Callable[[Sequence[Candidate]], T]) -> T:
    """The result of ``attempt`` with zones in place of racks, if it is spread; otherwise that with racks."""
    zones = [replace(candidate, rack=zone_of(candidate.rack)) for candidate in candidates]
    if zones != list(candidates) and len({candidate.rack for candidate in zones}) > 1:
        found = attempt(zones)
        if found.is_spread:
            return found
    return attempt(candidates)


def _ensemble(candidates: Sequence[Candidate], ensemble_size: int, write_quorum: int, choose: Choose) -> Ensemble:
    usable = _usable(candidates, ensemble_size)
    if len(usable) < ensemble_size:
        purpose = f"a ledger with ensemble size {ensemble_size}"
        raise NotEnoughBookiesError(
            ensemble_size, len(usable), purpose, sum(candidate.is_read_only for candidate in candidates)
        )
    chosen = _pick(_in_preferred_order(usable, choose), ensemble_size, ensemble_size * (write_quorum - 1) // write_quorum)
    ensemble = _arrange(chosen, choose)
    racks = dict(enumerate(candidate.rack for candidate in ensemble))
    is_spread = not _can_spread(candidates, write_quorum) or _unspread(racks, ensemble_size, write_quorum, racks) == 0
    return Ensemble(tuple(candidate.bookie_id for candidate in ensemble), is_spread)


def _replacements(
    candidates: Sequence[Candidate],
    ensemble: tuple[str, ...],
    wanted: Sequence[int],
    excluded: frozenset[str],
    write_quorum: int,
    choose: Choose,
) -> Replacements:
    kept = {bookie_id for slot, bookie_id in enumerate(ensemble) if slot not in wanted}
    usable = _usable([candidate for candidate in candidates if candidate.bookie_id not in excluded | kept], len(wanted))
    racks = {candidate.bookie_id: candidate.rack for candidate in candidates}
    settled = {slot: racks.get(bookie_id) for slot, bookie_id in enumerate(ensemble) if slot not in wanted}
    filling = _Filling(ensemble, write_quorum, _in_preferred_order(usable, choose), settled)
    found = filling.fill(wanted)
    after = settled | {slot: racks.get(found.get(slot, ensemble[slot])) for slot in wanted}
    is_spread = not _can_spread(candidates, write_quorum) or _unspread(after, len(ensemble), write_quorum, found) == 0
    problem = None
    if len(found) < len(wanted):
        problem = NotEnoughBookiesError(len(wanted), len(found), f"the replacement of {len(wanted)} bookies of an ensemble")
    return Replacements(tuple(sorted(found.items())), is_spread, problem)


def _usable(candidates: Iterable[Candidate], needed: int) -> list[Candidate]:
    """The writable candidates, by id, without the quarantined ones if the others are enough."""
    writable = {candidate.bookie_id: candidate for candidate in candidates if not candidate.is_read_only}
    healthy = {bookie_id: candidate for bookie_id, candidate in writable.items() if not candidate.is_quarantined}
    usable = healthy if len(healthy) >= needed else writable
    return [usable[bookie_id] for bookie_id in sorted(usable)]


def _in_preferred_order(usable: list[Candidate], choose: Choose) -> list[Candidate]:
    """In random order, quarantined ones last."""
    left = list(usable)
    shuffled = [left.pop(choose(len(left))) for _ in range(len(left))]
    return sorted(shuffled, key=lambda candidate: candidate.is_quarantined)


def _pick(preferred: list[Candidate], count: int, most_of_a_rack: int) -> list[Candidate]:
    """The first ``count``; candidates beyond ``most_of_a_rack`` come after all others."""
    taken: Counter[str] = Counter()
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    for candidate in preferred:
        (within if taken[candidate.rack] < most_of_a_rack else beyond).append(candidate)
        taken[candidate.rack] += 1
    return (within + beyond)[:count]


def _arrange(chosen: list[Candidate], choose: Choose) -> list[Candidate]:
    """The bookies in slot order, those of one rack as far apart as possible, starting at a random slot."""
    counts = Counter(candidate.rack for candidate in chosen)
    racks = sorted(counts, key=lambda rack: -counts[rack])
    by_rack = [candidate for rack in racks for candidate in chosen if candidate.rack == rack]
    start = choose(len(chosen))
    placed = {
        (start + slot) % len(chosen): candidate
        for slot, candidate in zip(_slot_order(len(chosen), counts[racks[0]]), by_rack, strict=True)
    }
    return [placed[slot] for slot in range(len(chosen))]


def _slot_order(size: int, largest: int) -> list[int]:
    """The order in which racks take slots, beginning with the rack that has most bookies: ``largest``.

    If these are at most half of all: every other slot first, then those between, so that no neighbours share a rack. Otherwise
    the bookies of the other racks get even distances: if any order spreads all write sets, this one does.
    """
    if 2 * largest <= size:
        return [*range(0, size, 2), *range(1, size, 2)]
    others = size - largest
    between = [index * size // others for index in range(others)]
    return [slot for slot in range(size) if slot not in between] + between


def _can_spread(candidates: Sequence[Candidate], write_quorum: int) -> bool:
    return write_quorum > 1 and len({candidate.rack for candidate in candidates}) > 1


def _unspread(racks: Mapping[int, str | None], ensemble_size: int, write_quorum: int, slots: Iterable[int]) -> int:
    """How many of the write sets with one of ``slots`` are in a single rack. An unknown rack, None, is no second rack.

    A write set with a slot that is not in ``racks`` is incomplete, and not counted.
    """
    first_ids = {(slot - k) % ensemble_size for slot in slots for k in range(write_quorum)}
    write_sets = [write_set(entry_id, ensemble_size, write_quorum) for entry_id in sorted(first_ids)]
    complete = [members for members in write_sets if all(slot in racks for slot in members)]
    return sum(len({racks[slot] for slot in members} - {None}) < 2 for members in complete)


class _Filling:
    """The search for bookies for some slots of an ensemble, with all write sets spread if it finds such bookies."""

    def __init__(
        self, ensemble: tuple[str, ...], write_quorum: int, preferred: list[Candidate], settled: Mapping[int, str | None]
    ) -> None:
        """``settled`` are the racks of the slots that keep their bookies."""
        self._ensemble = ensemble
        self._write_quorum = write_quorum
        self._preferred = preferred
        self._settled = dict(settled)
        self._tries = 0

    def fill(self, slots: Sequence[int]) -> dict[int, str]:
        """Slots that can keep their own bookie are filled last, so that the others get a bookie if there are enough."""
        ids = {candidate.bookie_id for candidate in self._preferred}
        order = sorted(slots, key=lambda slot: self._ensemble[slot] in ids)
        spread = self._search(order, {}) if len(ids) >= len(slots) else None
        found = spread if spread is not None else self._nearest(order)
        return {slot: candidate.bookie_id for slot, candidate in found.items()}

    def _search(self, slots: Sequence[int], found: dict[int, Candidate]) -> dict[int, Candidate] | None:
        """Bookies that spread all write sets, if there are. Of equivalent bookies only the most preferred one is tried."""
        if not slots:
            return found
        slot, *rest = slots
        seen = set()
        for candidate in self._options(slot, found):
            kind = (candidate.rack, candidate.bookie_id == self._ensemble[slot])
            if kind in seen or self._tries >= MAX_TRIES:
                continue
            seen.add(kind)
            self._tries += 1
            more = {**found, slot: candidate}
            complete = self._search(rest, more) if self._unspread(slot, more) == 0 else None
            if complete is not None:
                return complete
        return None

    def _nearest(self, slots: Sequence[int]) -> dict[int, Candidate]:
        """For each slot in turn the bookie that leaves the fewest write sets in a single rack."""
        found: dict[int, Candidate] = {}
        for slot in slots:
            options = self._options(slot, found)
            if options:
                found[slot] = min(options, key=lambda candidate: self._unspread(slot, {**found, slot: candidate}))
        return found

    def _options(self, slot: int, found: Mapping[int, Candidate]) -> list[Candidate]:
        """The bookies that the slot may get, most preferred first."""
        elsewhere = {candidate.bookie_id for candidate in found.values()} | set(self._ensemble) - {self._ensemble[slot]}
        return [candidate for candidate in self._preferred if candidate.bookie_id not in elsewhere]

    def _unspread(self, slot: int, found: Mapping[int, Candidate]) -> int:
        racks = self._settled | {other: candidate.rack for other, candidate in found.items()}
        return _unspread(racks, len(self._ensemble), self._write_quorum, [slot]) if self._write_quorum > 1 else 0


@dataclass(slots=True)
class _Record:
    failed_ms: list[int] = field(default_factory=list)
    """The failures of the last period, ascending."""
    out_until_ms: int = 0


class Quarantine:
    """Bookies that fail so often that new ensembles do without them for a while. Times are of one clock that never goes back.

    A bookie that fails ``errors`` requests within ``period_ms`` is out for ``period_ms``. Meanwhile its failures, to handles
    that still use it, are not counted. So it returns for certain, and is out again after as many new failures.

    Worked example, 3 failures within 60 s: failures at 0, 30 and 50 s put it out from 50 to 110 s; at 0, 30 and 70 s they do
    not.

    Ref: Apache BookKeeper's bookie health check; situation 21.
    """

    def __init__(self, errors: int, period_ms: int) -> None:
        self._errors = errors
        self._period_ms = period_ms
        self._records: dict[str, _Record] = {}

    def report(self, bookie_id: str, now_ms: int) -> bool:
        """Count a failure; returns whether this failure puts the bookie out."""
        record = self._records.pop(bookie_id, None) or _Record()
        self._records[bookie_id] = record
        if len(self._records) > MAX_BOOKIES:
            del self._records[next(iter(self._records))]
        if now_ms < record.out_until_ms:
            return False
        record.failed_ms = [failed_ms for failed_ms in record.failed_ms if failed_ms > now_ms - self._period_ms] + [now_ms]
        if len(record.failed_ms) < self._errors:
            return False
        record.out_until_ms = now_ms + self._period_ms
        return True

    def bookies(self, now_ms: int) -> frozenset[str]:
        """The bookies that are out."""
        return frozenset(bookie_id for bookie_id, record in self._records.items() if now_ms < record.out_until_ms)
