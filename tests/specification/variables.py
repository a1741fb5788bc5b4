"""The variables of the specification: the ledger in the metadata store, what bookies hold, and each client's view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bk_spark.quorum import write_set
from tests.specification.actions import COPY, RECOVERY, Fragments, Ids, Ledger
from tests.specification.judge import Judge

OPEN, IN_RECOVERY, CLOSED = "OPEN", "IN_RECOVERY", "CLOSED"
OK, FENCED = "OK", "FENCED"
NO_SUCH_ENTRY, NO_SUCH_LEDGER = "NO_SUCH_ENTRY", "NO_SUCH_LEDGER"
NEGATIVE = (NO_SUCH_ENTRY, NO_SUCH_LEDGER)

NO_ENTRY = -1


@dataclass(slots=True)
class Add:
    """An add under way to a bookie. ``is_void``: the client gave it up, and its answer counts no more."""

    bookie: str
    ids: Ids
    is_void: bool = False
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A compare-and-set that was sent. ``has_withdrawn``: its client had by then."""

    ledger: Ledger
    expected_version: int
    has_withdrawn: bool


@dataclass(slots=True)
class RecoveryView:
    """What a recovery knows besides: ``ensemble`` is that of the last fragment when it began."""

    ensemble: tuple[str, ...] = ()
    has_read: bool = False
    """Whether the fencing phase is over."""
    fence_requests: dict[int, str] = field(default_factory=dict)
    fenced: dict[str, list[int]] = field(default_factory=dict)
    """With the last adds confirmed that each answered."""
    reads: dict[int, tuple[str, Ids]] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)
    """Entries of which it was given a copy."""
    denied: dict[int, set[str]] = field(default_factory=dict)
    """Entry → the bookies that denied it."""


@dataclass(slots=True)
class Operation:
    """What one client knows and has done: a writer, a recovery, or a copy."""

    kind: str
    write_quorum: int
    ack_quorum: int
    fragments: Fragments
    lac: int = NO_ENTRY
    lap: int = NO_ENTRY
    """The last add pushed."""
    is_withdrawn: bool = False
    is_closing: bool = False
    next_ensemble: tuple[str, ...] | None = None
    """Of a change whose compare-and-set is under way."""
    adds: dict[int, Add] = field(default_factory=dict)
    """By request."""
    live: dict[str, dict[Ids, Add]] = field(default_factory=dict)
    """Those that are not void, by bookie."""
    failed: set[str] = field(default_factory=set)
    """Bookies of the ensemble that did not take an add, or that it gave up."""
    acks: dict[int, set[str]] = field(default_factory=dict)
    """Entry → the bookies whose acks count."""
    writes: list[Write] = field(default_factory=list)
    recovery: RecoveryView = field(default_factory=RecoveryView)

    @property
    def is_recovery(self) -> bool:
        return self.kind == RECOVERY

    @property
    def is_writer(self) -> bool:
        return self.kind not in (RECOVERY, COPY)

    @property
    def ensemble(self) -> tuple[str, ...]:
        return self.fragments[-1][1]

    def write_set(self, entry_id: int, ensemble: tuple[str, ...]) -> set[str]:
        return {ensemble[slot] for slot in write_set(entry_id, len(ensemble), self.write_quorum)}

    def counted(self, entry_id: int) -> int:
        """The acks that count: of its write set, and while a change is under way of those that stay in it."""
        counting = self.acks.get(entry_id, set()) & self.write_set(entry_id, self.ensemble)
        if self.next_ensemble is not None:
            counting &= self.write_set(entry_id, self.next_ensemble)
        return len(counting)

    def sent(self, request: int, add: Add) -> None:
        self.adds[request] = add
        self.live.setdefault(add.bookie, {})[add.ids] = add
        self.lap = max(self.lap, add.ids.last)

    def fail(self, add: Add) -> None:
        """Its bookie did not take it, or owes the answer for too long."""
        add.is_void = True
        self.live[add.bookie].pop(add.ids, None)
        self.failed.add(add.bookie)

    def failing(self) -> set[str]:
        """The bookies that may be replaced: those that failed, and those that owe an answer."""
        owing = (bookie for bookie, adds in self.live.items() if not all(add.is_answered for add in adds.values()))
        return self.failed.union(owing)

    def forget(self, bookies: Iterable[str]) -> None:
        """They have left the ensemble: take back their acks of what is in the last fragment."""
        left = set(bookies)
        self.failed -= left
        for bookie in left:
            for add in self.live.pop(bookie, {}).values():
                add.is_void = True
        for entry_id, acks in self.acks.items():
            if entry_id >= self.fragments[-1][0]:
                acks -= left


@dataclass(slots=True)
class Bookie:
    """What a bookie has of the ledger, and what it said: a client cannot hear what nobody said."""

    entries: set[int] = field(default_factory=set)
    """What it acknowledged, and has."""
    sent: set[int] = field(default_factory=set)
    """What it may have: it was sent."""
    is_fenced: bool = False
    may_be_fenced: bool = False
    """Somebody asked for it."""
    in_limbo: bool = False
    is_lossy: bool = False
    """What it lost, or copied to itself, the specification does not know of."""
    acked: dict[bool, set[int]] = field(default_factory=lambda: {False: set(), True: set()})
    """What it said that it took, of writers and, under True, of recoveries."""
    has_refused: bool = False
    """Whether it said that it is fenced."""
    denied: set[int | None] = field(default_factory=set)
    """What it said that it has not; None: anything."""


@dataclass(slots=True)
class Variables:
    ledger: Ledger | None = None
    version: int = -1
    versions: dict[int, Ledger] = field(default_factory=dict)
    """All that the store ever held."""
    operations: dict[str, Operation] = field(default_factory=dict)
    bookies: dict[str, Bookie] = field(default_factory=dict)

    def operation(self, who: str, judge: Judge) -> Operation:
        judge.require(who in self.operations, "this operation never began")
        return self.operations[who]

    def bookie(self, name: str) -> Bookie:
        return self.bookies.setdefault(name, Bookie())


def ensemble_of(ledger: Ledger, entry_id: int) -> tuple[str, ...]:
    return next(ensemble for first, ensemble in reversed(ledger.fragments) if first <= entry_id)
