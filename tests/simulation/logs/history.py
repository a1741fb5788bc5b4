"""What was said to the applications of a duel: the ground truth of its invariants (log_audit.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.logs.audit import LogAudit, require


@dataclass(slots=True)
class Append:
    """One call of one writer's ``append``: turns count the time."""

    payload: bytes
    writer: str
    begun: int
    confirmed: int | None = None
    position: tuple[int, int] | None = None


@dataclass(slots=True)
class Batch:
    """What a write puts in. Retries of a batch of an application are jobs of their own, with the same rows."""

    payloads: tuple[bytes, ...]
    application: tuple[str, int] | None
    begun: int
    committed: int | None = None
    """When somebody was first told that it is in the log."""


@dataclass(slots=True)
class LogHistory:
    """Payloads are unique within a run, save those of a retried batch."""

    appends: list[Append] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    readings: dict[str, list[bytes]] = field(default_factory=dict)
    stretches: list[list[bytes]] = field(default_factory=list)
    """What was read of the log as it stood at one moment."""
    unlisted: set[int] = field(default_factory=set)
    """Ledgers of jobs that were aborted, or dropped as duplicates."""

    def batch(self, payloads: Sequence[bytes], turn: int, application: tuple[str, int] | None = None) -> Batch:
        """The batch of an application that somebody began before is the same one."""
        known = [one for one in self.batches if application is not None and one.application == application]
        if not known:
            known = [Batch(tuple(payloads), application, turn)]
            self.batches += known
        return known[0]

    def read(self, reader: str, payloads: Sequence[bytes]) -> None:
        self.readings.setdefault(reader, []).extend(payloads)

    def check_streams(self, audit: LogAudit, streams: Sequence[str]) -> None:
        """Those have read to the end."""
        for one in streams:
            missing = sum(len(audit.entries(ledger_id)) for ledger_id in audit.fold.stream) - len(self.readings.get(one, []))
            require(missing == 0, "L5", f"{one} has read to the end, and misses {missing} rows")

    def check(self, audit: LogAudit) -> None:
        """At the end of a run, when every ledger of the log is closed. Raises Violation."""
        content = [payload for ledger_id in audit.fold.stream for payload in audit.entries(ledger_id)]
        places = {payload: place for place, payload in enumerate(content)}
        twice = [payload for payload, count in Counter(content).items() if count > 1]
        require(not twice, "L4", f"in the log more than once: {twice[:5]}")
        visible = self.unlisted.intersection(*[{one for listing in audit.listings for one in listing}])
        require(not visible, "L8", f"ledgers {sorted(visible)} belong to jobs that were aborted or dropped, and are listed")
        listed = [payload for ledger_id in audit.fold.listing for payload in audit.entries(ledger_id)]
        require(listed == content[len(content) - len(listed) :], "L9", "what is listed is not the end of the stream")
        require(audit.fold.end_row == len(content), "L9", f"{audit.fold.end_row} rows are counted of {len(content)}")
        self._check_appends(audit, places)
        self._check_batches(places)
        self._check_order(places)
        for reader, read in self.readings.items():
            require(read == content[: len(read)], "L5", f"{reader} read {_difference(read, content)}")
        for read in self.stretches:
            start = places[read[0]] if read and read[0] in places else 0
            problem = f"somebody read, from row {start} on, {_difference(read, content[start:])}"
            require(read == content[start : start + len(read)], "L5", problem)

    def _check_appends(self, audit: LogAudit, places: dict[bytes, int]) -> None:
        last: dict[str, Append] = {}
        for one in self.appends:
            before, last[one.writer] = last.get(one.writer), one
            is_in = one.payload in places
            require(
                one.confirmed is None or is_in, "L1", f"{one.payload!r} was confirmed at {one.position}, and is not in the log"
            )
            is_behind = before is None or not is_in or places.get(before.payload, len(places)) < places[one.payload]
            require(is_behind, "L3", f"{one.payload!r} is in the log, and before it not {before.payload if before else b''!r}")
            if one.position is not None:
                ledger_id, entry_id = one.position
                found = audit.entries(ledger_id)[entry_id : entry_id + 1]
                require(found == [one.payload], "L1", f"{one.payload!r} was confirmed at {one.position}, where {found} stands")

    def _check_batches(self, places: dict[bytes, int]) -> None:
        for one in self.batches:
            there = sum(payload in places for payload in one.payloads)
            require(there in (0, len(one.payloads)), "L4", f"{there} of {one.payloads} are in the log")
            require(one.committed is None or there > 0 or not one.payloads, "L4", f"{one} was committed, and is not in the log")

    def _check_order(self, places: dict[bytes, int]) -> None:
        """Whatever was confirmed before something began stands before it: by the highest place confirmed so far."""
        ended = [(one.confirmed, places[one.payload]) for one in self.appends if one.confirmed is not None]
        ended += [(one.committed, places[p]) for one in self.batches if one.committed is not None for p in one.payloads]
        begun = [(one.begun, places[one.payload], one.payload) for one in self.appends if one.payload in places]
        begun += [(one.begun, places[p], p) for one in self.batches for p in one.payloads if p in places]
        highest, ends = -1, sorted(ended)
        for turn, place, payload in sorted(begun):
            while ends and ends[0][0] < turn:
                highest = max(highest, ends.pop(0)[1])
            require(place > highest, "L2", f"{payload!r} began after what stands behind it was confirmed")


def _difference(read: list[bytes], content: list[bytes]) -> str:
    place = next((n for n, (a, b) in enumerate(zip(read, content, strict=False)) if a != b), len(content))
    return f"{read[place : place + 3]} at row {place}, where the log has {content[place : place + 3]}"
