"""Checking replicas: ask every bookie of a fragment's ensemble for the entries that it should hold, and verify each entry.

A bookie *lacks* an entry if it says that it does not have it (or nothing of the ledger), that its copy is damaged, or if it
sends a copy with a wrong digest. A bookie that does not answer, cannot read its disk, is in limbo, or refuses the request is
**unknown**. That counts for nothing, unless the caller knows that the bookie is lost. Damage is searched for entry by entry, up
to ``MAX_LACKING`` entries of one bookie and fragment: then it is certain that it must be copied, and the rest stays unknown.

A check reads everything or a sample: the first and the last entry that each bookie should hold of each fragment.

All bookies of an ensemble are asked at once, each for one answer at a time. The check proceeds in windows of entries, because
the answers of all bookies about an entry are needed together to count the entries with no replica, or too few.

Memory: one answer of each bookie, and a byte for each entry and bookie of a window.

Ref: docs/rules.md, protocol rules 54 and 55; situations 81 and 82.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.limits import CheckLimits
from bk_spark.client.protocol.stripe_reads import Failure, Request, Striping, Verifier, failure_of_end
from bk_spark.entries.rate import ByteRate
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.wire.messages import Status

WINDOW_ENTRIES = 65_536
"""Entries that are counted together: half a megabyte for the largest usual ensembles."""

MAX_LACKING = 1_000
"""After so many lacking entries of one bookie and fragment the rest is skipped: each costs a request of its own."""

_UNKNOWN, _GOOD, _LACKING = 0, 1, 2


@dataclass(frozen=True, slots=True)
class CheckTask:
    """What to check of one ledger."""

    metadata: LedgerMetadata
    ranges: Sequence[tuple[Fragment, int, int]]
    """Fragments, with the first and the last entry to check of each, inclusive."""
    is_full: bool = True
    """False: of each bookie and fragment the first and the last entry alone."""
    bookies: frozenset[str] | None = None
    """The bookies to check; None: all."""
    lost: frozenset[str] = frozenset()
    """Bookies that are not asked, and count as lacking everything."""


@dataclass(slots=True)
class ReplicasChecked:
    """The result. An entry counts as having a replica unless its bookie is known to lack it."""

    entries: int = 0
    """Entries that were read, each counted once for each replica."""
    nbytes: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    """Bookies, and how many entries each of them lacks at least. A lost bookie counts with all that it should hold."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Bookies about which something stayed unknown, and why."""
    without_replica: int = 0
    """Entries that no bookie has."""
    below_ack_quorum: int = 0
    """Entries with some replicas, but fewer than the ack quorum."""
    below_write_quorum: int = 0
    """Entries with at least the ack quorum, but fewer than the write quorum."""


@dataclass(slots=True)
class _Replica:
    """What one slot should hold of a window."""

    slot: int
    bookie_id: str
    ids: npt.NDArray[np.int64]
    """The ids to ask for, ascending."""
    known: npt.NDArray[np.int8]
    """What is known of each of ``ids``."""
    next: int = 0
    """From this index in ``ids`` on nothing is known yet."""
    request: Request | None = None
    """The request under way."""

    @property
    def position(self) -> int:
        return int(self.ids[self.next])

    @property
    def is_done(self) -> bool:
        return self.next >= len(self.ids)


class CheckReplicas(sm.StateMachine):
    """The state machine of one ledger's check. Finish comes with a ReplicasChecked, never with an error.

    ``rate`` bounds the bytes that are read; several checks may share it.
    """

    def __init__(self, task: CheckTask, limits: CheckLimits, rate: ByteRate) -> None:
        super().__init__()
        self._task = task
        self._limits = limits
        self._rate = rate
        self._striping = Striping(task.metadata.ensemble_size, task.metadata.write_quorum)
        self._verifier = Verifier(task.metadata)
        self._windows = self._cut(task.ranges)
        self._lacking_in_fragment: Counter[int] = Counter()
        self._fragment: Fragment | None = None
        self._replicas: list[_Replica] = []
        self._numbers = itertools.count(1)
        self._result = ReplicasChecked()

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, sm.Start):
            self._next_window()
        elif isinstance(event, sm.ReadEvent):
            self._on_read(event, now_ms)
        self._check_timeouts(now_ms)
        while not self._finished and all(replica.is_done for replica in self._replicas):
            self._tally()
            self._next_window()
        self._request(now_ms)

    def deadline_ms(self) -> int | None:
        if self._finished:
            return None
        requests = [replica.request for replica in self._replicas]
        times = [asked.heard_ms + self._limits.timeout_ms for asked in requests if asked is not None and not asked.is_waiting]
        if any(not replica.is_done and replica.request is None for replica in self._replicas):
            times.append(self._rate.due_ms(0))
        return min(times, default=None)

    # --- windows

    def _cut(self, ranges: Sequence[tuple[Fragment, int, int]]) -> Iterator[tuple[Fragment, int, int]]:
        for fragment, first, last in ranges:
            if not self._task.is_full:
                yield fragment, first, last
                continue
            for start in range(first, last + 1, WINDOW_ENTRIES):
                yield fragment, start, min(start + WINDOW_ENTRIES - 1, last)

    def _next_window(self) -> None:
        window = next(self._windows, None)
        if window is None:
            self._finish(self._result)
            return
        fragment, first, last = window
        if fragment is not self._fragment:
            self._fragment = fragment
            self._lacking_in_fragment.clear()
        checked = fragment.ensemble if self._task.bookies is None else self._task.bookies
        slots = [(slot, bookie_id) for slot, bookie_id in enumerate(fragment.ensemble) if bookie_id in checked]
        self._replicas = [self._replica(slot, bookie_id, first, last) for slot, bookie_id in slots]

    def _replica(self, slot: int, bookie_id: str, first: int, last: int) -> _Replica:
        ids = self._ids(slot, first, last)
        replica = _Replica(slot, bookie_id, ids, np.full(len(ids), _UNKNOWN, dtype=np.int8))
        if bookie_id in self._task.lost:
            replica.known[:] = _LACKING
            replica.next = len(ids)
        elif bookie_id in self._result.unknown:
            replica.next = len(ids)
        return replica

    def _ids(self, slot: int, first: int, last: int) -> npt.NDArray[np.int64]:
        pattern = self._task.metadata.slot_pattern(slot)
        if self._task.is_full:
            return pattern.ids(first, last)
        size = self._task.metadata.ensemble_size
        ends = pattern.ids(first, min(first + size - 1, last))[:1], pattern.ids(max(last - size + 1, first), last)[-1:]
        return np.unique(np.concatenate(ends))

    def _tally(self) -> None:
        """Count the entries of the window by how many replicas lack them."""
        for replica in self._replicas:
            missing = int((replica.known == _LACKING).sum())
            self._lacking_in_fragment[replica.slot] += missing
            if missing:
                self._result.lacking[replica.bookie_id] += missing
        if not self._replicas:
            return
        ids, places = np.unique(np.concatenate([replica.ids for replica in self._replicas]), return_inverse=True)
        known = np.concatenate([replica.known for replica in self._replicas])
        lacking = np.bincount(places[known == _LACKING], minlength=len(ids))
        left, quorum = self._task.metadata.write_quorum - lacking, self._task.metadata.ack_quorum
        assert not (left < 0).any(), "an entry has one replica on each slot of its write set"
        self._result.without_replica += int((left == 0).sum())
        self._result.below_ack_quorum += int(((left > 0) & (left < quorum)).sum())
        self._result.below_write_quorum += int(((left >= quorum) & (lacking > 0)).sum())

    # --- requests

    def _request(self, now_ms: int) -> None:
        if now_ms < self._rate.due_ms(now_ms):
            return
        for replica in self._replicas:
            if not replica.is_done and replica.request is None:
                self._send(replica, now_ms)

    def _send(self, replica: _Replica, now_ms: int) -> None:
        number, first, last = next(self._numbers), replica.position, self._last_asked(replica)
        replica.request = Request(number, replica.slot, first, now_ms, now_ms)
        pattern = self._task.metadata.slot_pattern(replica.slot)
        self._commands.append(sm.SendRead(number, replica.bookie_id, first, last, pattern, self._limits.request_bytes))

    def _last_asked(self, replica: _Replica) -> int:
        return int(replica.ids[-1]) if self._task.is_full else replica.position

    def _cancel(self, replica: _Replica) -> None:
        if replica.request is not None:
            self._commands.append(sm.CancelRead(replica.request.request_id))
            replica.request = None

    def _check_timeouts(self, now_ms: int) -> None:
        timeout_ms = self._limits.timeout_ms
        for replica in self._replicas:
            if replica.request is not None and replica.request.is_silent(timeout_ms, now_ms):
                self._give_up(replica, f"no answer for {timeout_ms / 1000:g} s")

    # --- answers

    def _on_read(self, event: sm.ReadEvent, now_ms: int) -> None:
        pairs = ((replica, replica.request) for replica in self._replicas if replica.request is not None)
        found = next((pair for pair in pairs if pair[1].request_id == event.request_id), None)
        if found is None:
            return
        if isinstance(event, sm.ReadArrived):
            self._on_arrived(event, *found, now_ms)
        elif isinstance(event, sm.ReadEnded):
            self._on_ended(event, *found)
        else:
            found[1].went_on(event, now_ms)

    def _on_arrived(self, event: sm.ReadArrived, replica: _Replica, request: Request, now_ms: int) -> None:
        request.heard_ms = now_ms
        self._rate.take(len(event.batch.body), now_ms)
        if replica.is_done:
            return
        residues = self._striping.residues_of(replica.slot)
        good, failure = self._verifier.good_prefix(event.batch, residues, replica.position, self._last_asked(replica))
        if good is not None:
            assert replica.next + len(good) <= len(replica.ids)
            replica.known[replica.next : replica.next + len(good)] = _GOOD
            replica.next += len(good)
            self._result.entries += len(good)
        self._result.nbytes += len(event.batch.body)
        if failure is not None:
            self._cancel(replica)
            self._fail(replica, failure)

    def _on_ended(self, event: sm.ReadEnded, replica: _Replica, request: Request) -> None:
        replica.request = None
        failure = None if replica.is_done else failure_of_end(event, request.first, replica.position)
        if failure is not None:
            self._fail(replica, failure)

    def _fail(self, replica: _Replica, failure: Failure) -> None:
        """The entry at the replica's position was not obtained."""
        if failure.status is Status.NO_SUCH_LEDGER:
            replica.known[replica.next :] = _LACKING
            replica.next = len(replica.ids)
        elif not failure.is_of_entry:
            self._give_up(replica, failure.detail)
        else:
            replica.known[replica.next] = _LACKING
            replica.next += 1
            found = self._lacking_in_fragment[replica.slot] + int((replica.known == _LACKING).sum())
            if found >= MAX_LACKING and not replica.is_done:
                self._give_up(replica, f"it lacks {found} entries of a fragment, the rest was not looked at")

    def _give_up(self, replica: _Replica, reason: str) -> None:
        """Leave the rest unknown, and do not ask this bookie again for this ledger."""
        self._cancel(replica)
        self._result.unknown[replica.bookie_id] = reason
        replica.next = len(replica.ids)


def checkable(metadata: LedgerMetadata, confirmed: int) -> list[tuple[Fragment, int, int]]:
    """The fragments whose entries every bookie should hold already, each with its first and last entry.

    If the ledger is not CLOSED its last fragment still grows, and so may others whose end is not yet known to be confirmed
    (protocol rule 55): ``confirmed`` is the LAC that its bookies know.
    """
    if metadata.last_entry_id is not None:
        return metadata.fragment_ranges(metadata.last_entry_id)
    before = metadata.fragment_ranges(metadata.last_fragment.first_entry_id - 1)
    return [(fragment, first, last) for fragment, first, last in before if last <= confirmed]
