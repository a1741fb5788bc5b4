"""Whether a duel for a log kept what logs promise: judged by what the duellists and the readers recorded.

D1  a confirmed entry is in the log, at the place that was told                      D5  all readers see one order
D2  an entry is in the log at most once, and somebody appended it                    D6  leaders follow one another
D3  an entry of a session is in the log only behind all that the session appended before it (log rule 3)
D4  an entry that was confirmed before another one was appended stands before it (log rule 2)
D7  a leader fails only as displacement and faults explain

``final`` is the log as it is read in the end: (ledger id, entry id, payload), in order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bk_spark.errors import CorruptionError
from tests.simulation.engines.invariants import Violation
from tests.soak.chaos.duellist import APPENDED, CONFIRMED, FAILED, LED
from tests.soak.chaos.history import Event

LOG_READ = "log read"
"""By a reader: ``count`` entries, whose ledger ids, entry ids and payloads have the digest ``digest``, see ``Prefixes``."""

EXPECTED = {
    "AddQuorumTimeoutError",
    "BookieUnavailableError",
    "LedgerFencedError",
    "MetadataConflictError",
    "MetadataUnavailableError",
    "NotEnoughBookiesError",
}

Entry = tuple[int, int, bytes]
Name = tuple[str, int]


class Prefixes:
    """The digest of what was read so far, entry by entry."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, entry: Entry) -> None:
        ledger_id, entry_id, payload = entry
        self.count += 1
        self._hash.update(b"%d %d %d " % (ledger_id, entry_id, len(payload)) + payload)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class DuelVerdict:
    confirmed: int
    leaderships: int
    ledgers: int
    displaced: int
    reads: int
    violations: list[Violation]

    def __str__(self) -> str:
        what = f"{self.leaderships} leaderships ({self.displaced} displaced), {self.ledgers} ledgers, {self.reads} reads"
        lines = [f"{self.confirmed} entries confirmed, {what}, {len(self.violations)} violations"]
        return "\n".join(lines + [f"  VIOLATED {one}" for one in self.violations[:20]])


def damaged(problem: CorruptionError) -> DuelVerdict:
    """Of a duel whose log cannot be read any more."""
    return DuelVerdict(0, 0, 0, 0, 0, [Violation("D1", str(problem))])


def check_duel(events: Sequence[Event], final: Sequence[Entry]) -> DuelVerdict:
    """Judge a duel; ``events`` in the order of their times."""
    duel = _Duel(events, final)
    rules: tuple[Callable[[], Iterable[Violation]], ...] = (
        duel.places,
        duel.occurrences,
        duel.predecessors,
        duel.real_time,
        duel.readers,
        duel.leaders,
        duel.failures,
    )
    violations = [violation for rule in rules for violation in rule()]
    counts = Counter(event.kind for event in events)
    displaced = sum(event.kind == FAILED and event["error"] == "LedgerFencedError" for event in events)
    ledgers = len({ledger_id for ledger_id, _, _ in final})
    return DuelVerdict(len(duel.confirmed), counts[LED], ledgers, displaced, counts[LOG_READ], violations)


class _Duel:
    def __init__(self, events: Sequence[Event], final: Sequence[Entry]) -> None:
        self._events = events
        self._final = final
        self._order = [_name(payload) for _, _, payload in final]
        self.confirmed: dict[Name, tuple[int, int]] = {}
        self._confirmed_ns: dict[Name, int] = {}
        self._appended_ns: dict[Name, int] = {}
        for event in events:
            if event.kind in (APPENDED, CONFIRMED):
                self._take(event)

    def _take(self, event: Event) -> None:
        for offset in range(event["count"]):
            name = event["session"], event["first"] + offset
            if event.kind == APPENDED:
                self._appended_ns[name] = event.at_ns
            else:
                self._confirmed_ns[name] = event.at_ns
                self.confirmed[name] = event["ledger_id"], event["entry_id"] + offset

    def places(self) -> Iterable[Violation]:
        found = {name: (ledger_id, entry_id) for name, (ledger_id, entry_id, _) in zip(self._order, self._final, strict=True)}
        for name, place in self.confirmed.items():
            if found.get(name) != place:
                yield Violation("D1", f"{name} was confirmed at {place} and is at {found.get(name)}")

    def occurrences(self) -> Iterable[Violation]:
        for name, count in Counter(self._order).items():
            if count > 1:
                yield Violation("D2", f"{name} is in the log {count} times")
            if name not in self._appended_ns:
                yield Violation("D2", f"{name} is in the log, and nobody appended it")

    def predecessors(self) -> Iterable[Violation]:
        last: dict[str, int] = {}
        for session, number in self._order:
            if number != last.get(session, -1) + 1:
                yield Violation("D3", f"entry {number} of {session} is behind its entry {last.get(session)}")
            last[session] = number

    def real_time(self) -> Iterable[Violation]:
        first_ns, of = float("inf"), ("", -1)
        for name in reversed(self._order):
            if self._appended_ns.get(name, 0) > first_ns:
                yield Violation("D4", f"{name} was appended after {of} was confirmed, and stands before it")
            if self._confirmed_ns.get(name, first_ns) < first_ns:
                first_ns, of = self._confirmed_ns[name], name

    def readers(self) -> Iterable[Violation]:
        reads = {event["count"]: event for event in self._events if event.kind == LOG_READ}
        digests = {(event["count"], event["digest"]) for event in self._events if event.kind == LOG_READ}
        prefixes = Prefixes()
        possible = {(0, prefixes.digest)}
        for entry in self._final:
            prefixes.add(entry)
            if prefixes.count in reads:
                possible.add((prefixes.count, prefixes.digest))
        for count, _ in sorted(digests - possible):
            yield Violation("D5", f"{reads[count].who} read {count} entries that the log does not begin with")

    def leaders(self) -> Iterable[Violation]:
        epochs = {event["session"]: event["epoch"] for event in self._events if event.kind == LED}
        if len(set(epochs.values())) != len(epochs):
            yield Violation("D6", f"two leaderships have one epoch: {sorted(epochs.items(), key=lambda one: one[1])}")
        latest = -1
        for session, _ in dict.fromkeys((session, epochs.get(session, -1)) for session, _ in self._order):
            if epochs.get(session, -1) < latest:
                yield Violation("D6", f"{session} of epoch {epochs.get(session)} stands behind epoch {latest}")
            latest = max(latest, epochs.get(session, -1))

    def failures(self) -> Iterable[Violation]:
        for event in self._events:
            if event.kind == FAILED and event["error"] not in EXPECTED:
                yield Violation("D7", f"{event['session'] or event.who}: {event['error']}: {event['text']}")


def _name(payload: bytes) -> Name:
    session, _, number = payload.decode().rpartition(" ")
    return session, int(number)
