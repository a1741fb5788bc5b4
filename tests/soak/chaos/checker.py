"""Whether a round kept what was promised: judged by its recorded history alone. Numbers as in the simulator's.

I1  no entry is confirmed beyond the closed end      I7   the length at the end fits, the end was appended
I2  confirmations come in order, without gaps        I12  an entry is what was appended in its place
I4  all who open a ledger see one end                I13  readers are shown confirmed entries only, none is denied
                                                     I14  once faults have ended, recovery ends

An entry is *lost* if it was confirmed and a final reader does not get it, *divergent* if two readers got different payloads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.engines.invariants import Violation
from tests.soak.chaos import history
from tests.soak.chaos.history import Event, last_confirmed
from tests.soak.chaos.plan import FIRST, SECOND

EXPECTED = {
    history.WRITER_FAILED: {
        "AddQuorumTimeoutError",
        "BookieUnavailableError",
        "LedgerClosedError",
        "LedgerFencedError",
        "MetadataConflictError",
        "MetadataUnavailableError",
        "NotEnoughBookiesError",
    },
    history.OPEN_FAILED: {
        "AddQuorumTimeoutError",
        "BookieUnavailableError",
        "MetadataConflictError",
        "MetadataUnavailableError",
        "NotEnoughBookiesError",
    },
    history.READ_FAILED: {"BookieUnavailableError", "MetadataUnavailableError"},
}
"""How operations may fail while bookies and ZooKeeper do. All else, such as InternalError, is a bug."""


@dataclass(slots=True)
class Verdict:
    confirmed: int = 0
    """Entries that the application was told to be confirmed."""
    lost: set[int] = field(default_factory=set)
    divergent: set[int] = field(default_factory=set)
    unended: bool = False
    """The recovery did not end once enough bookies were back."""
    violations: list[Violation] = field(default_factory=list)
    """Everything that was found, lost and divergent entries and unended recoveries too."""

    def require(self, holds: bool, invariant: str, problem: str) -> None:
        if not holds:
            self.violations.append(Violation(invariant, problem))


def check(events: list[Event]) -> Verdict:
    """Judge the events of one ledger, in the order of their times."""
    verdict = Verdict(confirmed=last_confirmed(events) + 1)
    for rule in (_order, _end, _contents, _final_reads, _shown, _denials, _fencing, _failures, _answers, _recovery):
        rule(events, verdict)
    return verdict


def _of(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def _ends(events: Iterable[Event]) -> list[Event]:
    """Everybody's view of the closed ledger: of those who opened it, and of the writer that closed it."""
    return [event for event in events if event.kind in (history.OPENED, history.WRITER_CLOSED)]


def _appended(events: Iterable[Event]) -> list[tuple[str, int]]:
    """Digest and size of each payload in the order in which they were appended."""
    return [one for event in _of(events, history.APPENDED) for one in zip(event["digests"], event["sizes"], strict=True)]


def _order(events: list[Event], verdict: Verdict) -> None:
    confirmed = -1
    for event in _of(events, history.CONFIRMED):
        verdict.require(event["first"] == confirmed + 1, "I2", f"entry {event['first']} is confirmed after entry {confirmed}")
        confirmed = event["last"]


def _end(events: list[Event], verdict: Verdict) -> None:
    ends, payloads = _ends(events), _appended(events)
    seen = {(event["last"], event["length"]) for event in ends}
    verdict.require(len(seen) <= 1, "I4", "different ends were seen: " + ", ".join(f"{e.who}: {e.facts}" for e in ends))
    confirmed = verdict.confirmed - 1
    for last, length in sorted(seen):
        verdict.require(last >= confirmed, "I1", f"closed at {last}, though entry {confirmed} was confirmed")
        expected = sum(size for _, size in payloads[: last + 1])
        is_right = length == expected or _java_recovers(events)
        verdict.require(is_right, "I7", f"closed at {last} with length {length}, which is {expected}")
        verdict.require(last < len(payloads), "I7", f"closed at {last}, though {len(payloads)} entries were appended")


def _java_recovers(events: list[Event]) -> bool:
    """Then the length at the end may be wrong: java_agents.py says why."""
    return any(not {FIRST, SECOND}.isdisjoint(event["java_roles"]) for event in _of(events, history.PLAN))


def _contents(events: list[Event], verdict: Verdict) -> None:
    """Whoever read an entry read the same, and what was appended."""
    payloads, found = _appended(events), defaultdict[int, set[str]](set)
    for event in _of(events, history.READ):
        for entry_id, one in enumerate(event["digests"], event["first"]):
            found[entry_id].add(one)
            known = entry_id < len(payloads) and payloads[entry_id][0] == one
            verdict.require(known, "I12", f"{event.who} read as entry {entry_id} what was not appended there")
    verdict.divergent = {entry_id for entry_id, digests in found.items() if len(digests) > 1}
    verdict.require(not verdict.divergent, "I12", f"readers differ at entries {sorted(verdict.divergent)[:10]}")


def _final_reads(events: list[Event], verdict: Verdict) -> None:
    """At least two readers read the whole ledger in the end; each confirmed entry reached all of them."""
    readers = defaultdict[str, set[int]](set)
    for event in _of(events, history.READ):
        if event["final"]:
            readers[event.who].update(range(event["first"], event["first"] + len(event["digests"])))
    for who, found in readers.items():
        missing = set(range(verdict.confirmed)) - found
        verdict.lost |= missing
        verdict.require(not missing, "I1", f"{who} did not find the confirmed entries {sorted(missing)[:10]}")
        for end in _ends(events):
            verdict.require(found == set(range(end["last"] + 1)), "I8", f"{who} did not find all entries up to {end['last']}")
    if len(readers) < 2 and _of(events, history.OPENED):
        verdict.lost |= set(range(verdict.confirmed))
        verdict.require(verdict.confirmed == 0, "I1", f"{len(readers)} readers read confirmed entries in the end, 2 must")


def _shown(events: list[Event], verdict: Verdict) -> None:
    """A last add confirmed that a reader was shown stays readable, and covers what a quorum must have known.

    Worked example: entry 4 is confirmed, then 5 is appended, then 5 is confirmed. An ack quorum holds 5, which says that 4
    is confirmed: whoever asks a quorum after that is shown 4 at least.
    """
    lasts = [event["last"] for event in _ends(events)]
    appended = len(_appended(events))
    certain = _known_to_quorums(events)
    for event in _of(events, history.SHOWN):
        shown = event["last_add_confirmed"]
        verdict.require(shown < appended, "I13", f"{event.who} was shown {shown}, though {appended} entries were appended")
        for last in lasts:
            verdict.require(shown <= last, "I13", f"{event.who} was shown {shown}, the ledger was closed at {last}")
        least = max((known for at_ns, known in certain if at_ns < event["asked_ns"]), default=-1)
        enough = not event["quorum"] or shown >= least
        verdict.require(enough, "I13", f"{event.who} asked a quorum and was shown {shown}, at least {least} was known to it")


def _known_to_quorums(events: list[Event]) -> list[tuple[int, int]]:
    """From when on an ack quorum knew which last add confirmed."""
    known: list[tuple[int, int]] = []
    confirmed, told = -1, dict[int, int]()
    for event in events:
        if event.kind == history.APPENDED:
            told[event["first"]] = confirmed
        elif event.kind == history.CONFIRMED:
            confirmed = event["last"]
            known.append((event.at_ns, told.get(event["first"], -1)))
    return known


def _denials(events: list[Event], verdict: Verdict) -> None:
    """An entry that was confirmed before a reader asked for it is never said not to exist."""
    for event in _of(events, history.DENIED):
        before = last_confirmed([one for one in events if one.at_ns < event["asked_ns"]])
        problem = f"{event.who} was told that there is no entry {event['entry_id']}, though it was confirmed"
        verdict.require(event["entry_id"] > before, "I13", problem)


def _fencing(events: list[Event], verdict: Verdict) -> None:
    """Nobody is fenced before somebody recovers."""
    openings = [event.at_ns for event in _of(events, history.OPENING)]
    for event in _of(events, history.WRITER_FAILED):
        fenced = event["error"] == "LedgerFencedError"
        verdict.require(not fenced or min(openings, default=event.at_ns) < event.at_ns, "I10", "fenced without a recovery")


def _failures(events: list[Event], verdict: Verdict) -> None:
    for event in events:
        expected = event.kind not in EXPECTED or event["error"] in EXPECTED[event.kind]
        verdict.require(expected, "I14", f"{event.who}: {event.kind} with {event.facts}")


def _answers(events: list[Event], verdict: Verdict) -> None:
    """A writer that lived has an answer to each append, and ends only where it was told to, or failed."""
    if _of(events, history.WRITER_ENDED):
        answered = verdict.confirmed == len(_appended(events)) or bool(_of(events, history.WRITER_FAILED))
        verdict.require(answered, "I14", "the writer did not fail, and appends of it have no answer")


def _recovery(events: list[Event], verdict: Verdict) -> None:
    """The round says when faults had ended and who had finished in time."""
    late = [who for event in _of(events, history.DONE) for who in event["late"]]
    verdict.unended = any(who.startswith("recoverer") for who in late) or not _of(events, history.OPENED)
    verdict.require(not late, "I14", f"not ended after the faults did: {', '.join(late)}")
    verdict.require(bool(_of(events, history.OPENED)), "I14", "nobody could open the ledger")
