"""Which bookies form an ensemble, and which ones replace its failed bookies. Pure.

Every write set spans as many racks, and then as many zones, as the bookies that may be chosen allow (``rack_spread.py``). A
replacement makes the most of the bookies that stay. Among choices that span as much, chance decides, so that all bookies get
about the same load. Quarantined bookies are chosen only if there are not enough others.

A bookie that names no rack is in the default rack, with all others that name none. One that is not registered, and whose rack
nobody remembers, counts as no rack: the others are spread as if it did not exist.

Ref: Apache BookKeeper's RackawareEnsemblePlacementPolicy and ZoneawareEnsemblePlacementPolicy; situation 89.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bk_spark.client.protocol.placement.arrange_racks import Choose, arranged, shuffled, slots_of_racks, widest
from bk_spark.client.protocol.placement.fill_slots import Filling, PlacedBookie, Vacancies, fill
from bk_spark.client.protocol.placement.rack_spread import Location, Spread, location_of, spread_of
from bk_spark.config import DEFAULT_RACK
from bk_spark.errors import NotEnoughBookiesError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered bookie."""

    bookie_id: str
    rack: str = DEFAULT_RACK
    is_quarantined: bool = False
    is_read_only: bool = False
    """It may be in an ensemble already, but is not chosen for a new one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a choice must keep to."""

    write_quorum: int
    min_racks: int = 1
    """The racks that each write set spans at least; a write set of fewer bookies, that many."""
    must_widen: bool = False
    """Replacements only: all write sets together must span more than before, whatever ``min_racks`` is."""
    only: str = ""
    """Replacements only: the one bookie that may be chosen, where all write sets together span no less than before."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A new ensemble, in the order of its slots."""

    bookies: tuple[str, ...]
    spread: Spread


@dataclass(frozen=True, slots=True)
class Replacements:
    """Slots, ascending, with their new bookies. ``problem`` says why there are fewer than were asked for.

    ``spread`` is that of the write sets with one of the slots, once these have their new bookies.
    """

    bookies: tuple[tuple[int, str], ...]
    spread: Spread
    problem: NotEnoughBookiesError | None = None


def choose_ensemble(candidates: Sequence[Candidate], ensemble_size: int, terms: Terms, choose: Choose) -> Ensemble:
    """Choose ``ensemble_size`` distinct writable bookies. Raises NotEnoughBookiesError."""
    usable = _usable(candidates, ensemble_size)
    purpose = f"a ledger with ensemble size {ensemble_size}"
    if len(usable) < ensemble_size:
        read_only = sum(candidate.is_read_only for candidate in candidates)
        raise NotEnoughBookiesError(ensemble_size, len(usable), purpose, read_only)
    chosen = _ensemble(_in_preferred_order(usable, choose), ensemble_size, terms.write_quorum, choose)
    if chosen.spread.fewest_racks < _required(terms):
        raise NotEnoughBookiesError(_required(terms), chosen.spread.fewest_racks, purpose, of_racks=True)
    return chosen


def choose_replacements(
    candidates: Sequence[Candidate],
    ensemble: tuple[str, ...],
    slots: Iterable[int],
    excluded: frozenset[str],
    *,
    terms: Terms,
    choose: Choose,
) -> Replacements:
    """Choose writable bookies for as many of ``slots`` as possible; none is in ``excluded`` or elsewhere in the ensemble.

    A slot may get its own bookie again, if that is a candidate and not excluded. If the terms cannot be met, no slot gets one.
    """
    wanted = sorted(set(slots))
    places = {candidate.bookie_id: location_of(candidate.rack) for candidate in candidates}
    kept = {bookie_id for slot, bookie_id in enumerate(ensemble) if slot not in wanted}
    allowed = [one for one in candidates if one.bookie_id not in excluded | kept and terms.only in ("", one.bookie_id)]
    usable = _usable(allowed, len(wanted))
    options = _in_preferred_order(usable, choose)
    own = {slot: option for slot in wanted for option in options if option.bookie_id == ensemble[slot]}
    free = [option for option in options if option.bookie_id not in ensemble]
    before = [places.get(bookie_id) for bookie_id in ensemble]
    judged = range(len(ensemble)) if terms.must_widen or terms.only else wanted
    found = fill(Vacancies(terms.write_quorum, before, wanted, free, own, judged))
    purpose = f"the replacement of {len(wanted)} bookies of an ensemble"
    if terms.only:
        purpose = f"a copy on bookie {terms.only}, in no fewer racks and zones than now,"
        if not found.spread.keeps(spread_of(before, terms.write_quorum)):
            return Replacements((), found.spread, NotEnoughBookiesError(len(wanted), 0, purpose))
    if terms.must_widen and found.spread <= spread_of(before, terms.write_quorum):
        racks = found.spread.fewest_racks
        return Replacements((), found.spread, NotEnoughBookiesError(racks + 1, racks, purpose, of_racks=True))
    if found.bookies and found.spread.fewest_racks < _required(terms):
        problem = NotEnoughBookiesError(_required(terms), found.spread.fewest_racks, purpose, of_racks=True)
        return Replacements((), found.spread, problem)
    bookies = tuple((slot, option.bookie_id) for slot, option in sorted(found.bookies.items()))
    too_few = NotEnoughBookiesError(len(wanted), len(bookies), purpose) if len(bookies) < len(wanted) else None
    return Replacements(bookies, found.spread, too_few)


def _required(terms: Terms) -> int:
    """0 if any number will do: the racks of those that stay need not be known, and what widens a spread is welcome."""
    return min(terms.min_racks, terms.write_quorum) if terms.min_racks > 1 and not terms.must_widen else 0


def _ensemble(preferred: Sequence[PlacedBookie], size: int, write_quorum: int, choose: Choose) -> Ensemble:
    slots = slots_of_racks(Counter(option.place for option in preferred), size, write_quorum, choose)
    order = arranged(slots, write_quorum, choose)
    found = _with_bookies(order, preferred, choose)
    filling = Filling(found, spread_of(order, write_quorum))
    most = widest(slots, size, write_quorum)
    if filling.spread < most:
        filling = fill(Vacancies(write_quorum, [None] * size, range(size), preferred), filling, most)
    return Ensemble(tuple(filling.bookies[slot].bookie_id for slot in range(size)), filling.spread)


def _with_bookies(order: Sequence[Location], preferred: Sequence[PlacedBookie], choose: Choose) -> dict[int, PlacedBookie]:
    """Each rack's most preferred bookies, in random order, for its slots."""
    counts, taken = Counter(order), dict[Location, list[PlacedBookie]]()
    for option in preferred:
        if len(of_rack := taken.setdefault(option.place, [])) < counts[option.place]:
            of_rack.append(option)
    in_turn = {place: shuffled(options, choose) for place, options in taken.items()}
    return {slot: in_turn[place].pop() for slot, place in enumerate(order)}


def _usable(candidates: Iterable[Candidate], needed: int) -> list[Candidate]:
    """The writable candidates, by id, without the quarantined ones if the others are enough."""
    writable = {candidate.bookie_id: candidate for candidate in candidates if not candidate.is_read_only}
    healthy = {bookie_id: candidate for bookie_id, candidate in writable.items() if not candidate.is_quarantined}
    usable = healthy if len(healthy) >= needed else writable
    return [usable[bookie_id] for bookie_id in sorted(usable)]


def _in_preferred_order(usable: list[Candidate], choose: Choose) -> list[PlacedBookie]:
    """In random order, quarantined ones last."""
    in_order = sorted(shuffled(usable, choose), key=lambda candidate: candidate.is_quarantined)
    return [PlacedBookie(candidate.bookie_id, location_of(candidate.rack)) for candidate in in_order]
