"""Which copies should move to emptier bookies, so that all are about equally full. Pure: no thread, clock or store.

A bookie's *fullness* is what it holds over what it can hold. The mean is that of all bookies together. A bookie above ``1 +
tolerance`` times the mean is *overfull*: copies move away from it, one of each fragment at a time, to the emptiest bookie

- that may take copies, and has none of the fragment;
- whose place spans as many racks and zones as the present one (``rack_spread.py``): balance never costs safety;
- that stays at or below the mean with it.

So each move brings bytes from above the mean to below it. What is above the mean shrinks with every move, no copy moves back,
and the plan ends. It ends earlier when ``max_bytes`` are planned: the next plan begins with what is there then. A plan is
made while ledgers are listed, page by page, and keeps nothing of them; who carries it out may stop after any move.

What a bookie holds is summed up from the metadata of all closed ledgers (``held_fragment``), in the same estimated bytes in
which moves are planned. So who runs it again begins where the last run ended. The disks say something else: what has moved away
is still there, for a day or so, until its bookie's garbage collection finds it.

Worked example, tolerance 0.1, bookies of equal size that hold 90, 60 and 0, in copies of 10: the mean is 50, so the first two
are overfull. Four copies move from the first to the third and one from the second. Nobody is above 55 then, which is the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bk_spark.client.protocol.placement.rack_spread import Location, location_of, spread_of
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.errors import ConfigError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import BookieDescription, entry_file_systems

TOLERANCE = 0.1
"""Above the mean by this share a bookie is overfull. What chance does to bookies with some thousand ledgers each is less."""

MAX_ANSWERS = 10_000
"""Places for a slot that are remembered: ensembles over the same racks have the same ones. Beyond it all are forgotten."""


@dataclass(frozen=True, slots=True)
class BookieCapacity:
    """A registered bookie that tells its space."""

    bookie_id: str
    rack: str
    held_bytes: int
    capacity_bytes: int
    """Above 0."""
    takes_copies: bool = True
    """Not if it is read-only, in quarantine, or about to be decommissioned."""


@dataclass(frozen=True, slots=True)
class HeldFragment:
    """A fragment that has an end: of which one copy may move."""

    ledger_id: int
    first_entry_id: int
    ensemble: tuple[str, ...]
    write_quorum: int
    copy_bytes: int
    """Of what one slot holds."""


def capacities(told: Mapping[str, BookieDescription | None]) -> dict[str, int]:
    """Bookie → bytes that it can hold; without those that do not tell. Bookies on one file system have equal shares of it."""
    systems = {name: {} if one is None else entry_file_systems(one.directories) for name, one in told.items()}
    users = Counter(system for of_bookie in systems.values() for system in of_bookie)
    shares = {name: sum(total // users[system] for system, (_, total) in one.items()) for name, one in systems.items()}
    found = {name: shares[name] or one.total_bytes for name, one in told.items() if one is not None}
    return {name: nbytes for name, nbytes in found.items() if nbytes}


def held_fragment(metadata: LedgerMetadata, index: int) -> HeldFragment:
    """A fragment of a closed ledger. The bytes are an estimate: its share of the entries, and a slot's share of these."""
    assert metadata.last_entry_id is not None, "the ledger is closed"
    fragment, last = metadata.fragments[index], last_entry_of(metadata, index)
    assert last is not None
    entries, slots = max(0, last + 1 - fragment.first_entry_id), metadata.ensemble_size
    nbytes = metadata.length * entries * metadata.write_quorum // (max(1, metadata.last_entry_id + 1) * slots)
    return HeldFragment(metadata.ledger_id, fragment.first_entry_id, fragment.ensemble, metadata.write_quorum, nbytes)


def held_fragments(metadata: LedgerMetadata) -> list[HeldFragment]:
    """All of a closed ledger, in their order."""
    return [held_fragment(metadata, index) for index in range(len(metadata.fragments))]


@dataclass(frozen=True, slots=True)
class CopyMove:
    """The copy in ``slot`` goes from one bookie to another."""

    ledger_id: int
    first_entry_id: int
    slot: int
    source: str
    target: str
    nbytes: int


class BalancePlan:
    """Moves for the fragments that it is shown, as if each was made at once."""

    def __init__(self, bookies: Iterable[BookieCapacity], *, max_bytes: int, tolerance: float = TOLERANCE) -> None:
        """Raises ConfigError for a tolerance that is not above 0."""
        if not tolerance > 0:
            raise ConfigError("tolerance", tolerance, "it must be above 0: bookies are never exactly equally full")
        self._bookies = {one.bookie_id: one for one in bookies}
        self._places = {name: location_of(one.rack) for name, one in self._bookies.items()}
        self._held = {name: one.held_bytes for name, one in self._bookies.items()}
        self._of_place: dict[Location, list[str]] = {}
        for name, one in sorted(self._bookies.items()):
            if one.takes_copies:
                self._of_place.setdefault(self._places[name], []).append(name)
        capacity = sum(one.capacity_bytes for one in self._bookies.values())
        self.mean = sum(self._held.values()) / capacity if capacity else 0.0
        self.left_bytes = max_bytes
        """What may still be planned."""
        self._most = (1 + tolerance) * self.mean
        self._answers: dict[object, tuple[Location, ...]] = {}

    def held_bytes(self, bookie_id: str) -> int:
        """After the moves that are planned so far."""
        return self._held[bookie_id]

    def fullness(self, bookie_id: str) -> float:
        """After the moves that are planned so far."""
        return self._held[bookie_id] / self._bookies[bookie_id].capacity_bytes

    @property
    def overfull(self) -> frozenset[str]:
        return frozenset(name for name in self._bookies if self.fullness(name) > self._most)

    @property
    def highest_over_mean(self) -> float:
        """1 for an empty cluster."""
        return max((self.fullness(name) for name in self._bookies), default=0.0) / self.mean if self.mean else 1.0

    @property
    def is_done(self) -> bool:
        return self.left_bytes <= 0 or not self.overfull

    def knows(self, bookie_ids: Iterable[str]) -> bool:
        """Whether all of these bookies are among the plan's."""
        return all(name in self._places for name in bookie_ids)

    def move_of(self, fragment: HeldFragment) -> CopyMove | None:
        """``wanted_move``, which counts from now on as if it was made."""
        move = self.wanted_move(fragment)
        if move is not None:
            self._held[move.source] -= move.nbytes
            self._held[move.target] += move.nbytes
            self.left_bytes -= move.nbytes
        return move

    def moves_of(self, fragment: HeldFragment) -> list[CopyMove]:
        """One after the other, for as many slots as should move."""
        moves = list[CopyMove]()
        while len(moves) < len(fragment.ensemble) and (move := self.move_of(fragment)) is not None:
            moves.append(move)
            ensemble = tuple(move.target if slot == move.slot else name for slot, name in enumerate(fragment.ensemble))
            fragment = replace(fragment, ensemble=ensemble)
        return moves

    def failed(self, move: CopyMove) -> None:
        """The move was not made. Its bytes stay spent: part of them may have been copied, and each try is to come to an end."""
        self._held[move.source] += move.nbytes
        self._held[move.target] -= move.nbytes

    def give_no_more(self, bookie_id: str) -> None:
        """The bookie takes no further copies: it has gone, is full, or fails."""
        for names in self._of_place.values():
            if bookie_id in names:
                names.remove(bookie_id)

    def wanted_move(self, fragment: HeldFragment) -> CopyMove | None:
        """The copy of the fragment that should move: of the fullest overfull bookie with somewhere to go. None: none should.

        Nothing moves while the rack of one of its bookies is not known, as nobody could say what the move costs.
        """
        if fragment.copy_bytes > self.left_bytes or not fragment.copy_bytes:
            return None
        if not self.knows(fragment.ensemble):
            return None
        full = [slot for slot, name in enumerate(fragment.ensemble) if self.fullness(name) > self._most]
        for slot in sorted(full, key=lambda one: self.fullness(fragment.ensemble[one]), reverse=True):
            target = self._target(fragment, slot)
            if target is not None:
                source, nbytes = fragment.ensemble[slot], fragment.copy_bytes
                return CopyMove(fragment.ledger_id, fragment.first_entry_id, slot, source, target, nbytes)
        return None

    def _target(self, fragment: HeldFragment, slot: int) -> str | None:
        """The emptiest bookie that may take the copy."""
        places = self._allowed(tuple(self._places[name] for name in fragment.ensemble), slot, fragment.write_quorum)
        free = [name for place in places for name in self._of_place[place] if name not in fragment.ensemble]
        emptiest = min(free, key=self.fullness, default=None)
        if emptiest is None:
            return None
        after = (self._held[emptiest] + fragment.copy_bytes) / self._bookies[emptiest].capacity_bytes
        return emptiest if after <= self.mean else None

    def _allowed(self, places: tuple[Location, ...], slot: int, write_quorum: int) -> tuple[Location, ...]:
        """Where the slot's copy may be, so that the write sets span no fewer racks or zones than now."""
        question = (places, slot, write_quorum)
        if question not in self._answers:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            before = spread_of(places, write_quorum)
            with_place = {place: (*places[:slot], place, *places[slot + 1 :]) for place in self._of_place}
            self._answers[question] = tuple(
                place for place, after in with_place.items() if spread_of(after, write_quorum).keeps(before)
            )
        return self._answers[question]
