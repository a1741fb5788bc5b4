"""Reading a range of a ledger: replica by replica, verified, in order.

The range is cut at fragment borders. Within a fragment the reader keeps *lanes*: a lane reads the entries of some
residues (id modulo E) from one slot, from its own position on. Without striping there is one lane for everything; with
striping a few lanes on different bookies cover all residues, and their entries are merged. What lies below the position
of every lane is complete and is delivered.

A lane whose bookie breaks off, stays silent, or sends an entry whose digest is wrong hands its residues to the next slot
of their write sets, at the entry that it could not get. An entry that no slot of its write set could give fails the
read: with "no such entry" only if **every** one of them said so, otherwise as unknown.

Memory: a new request is sent only while the bytes delivered and not yet consumed are below the read-ahead.

Ref: the BookKeeper protocol, "Writing to ledgers" (reading up to the LAC); BP-46, "A note on Quorums" (read entry).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bk_spark.client.operation import (
    CancelRead,
    Command,
    Consumed,
    Deliver,
    Event,
    Finish,
    ReadArrived,
    ReadEnded,
    SendRead,
    Start,
)
from bk_spark.digest import Digester
from bk_spark.entry import EntryBatch, decode
from bk_spark.errors import (
    BookieUnavailableError,
    BookKeeperError,
    CorruptionError,
    DigestMismatchError,
    NoSuchEntryError,
    UnauthorizedAccessError,
)
from bk_spark.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.quorum import write_set
from bk_spark.wire import Status, Verdict


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much a reader asks for and holds."""

    timeout_ms: int
    request_bytes: int
    ahead_bytes: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a slot did not give an entry. ``status`` is None for a wrong digest."""

    status: Status | None
    detail: str

    @property
    def is_of_entry(self) -> bool:
        """Whether it says nothing about the slot's other entries."""
        return self.status in (None, Status.NO_SUCH_ENTRY, Status.DAMAGED)


@dataclass(slots=True)
class _Lane:
    slot: int
    residues: frozenset[int]
    position: int
    """Every entry of the residues below it has arrived."""
    request_id: int | None = None
    requested: int = -1
    """The position at which the last request was sent."""
    heard_ms: int = 0
    failures: dict[int, _Failure] = field(default_factory=dict)
    """Slots that could not give the entry at ``position``."""
    arrived: list[EntryBatch] = field(default_factory=list)
    """Verified and not yet delivered."""


class ReadEntries:
    """The state machine of one read from ``first`` to ``last``, inclusive. ``avoid`` names bookies to ask last."""

    def __init__(
        self, metadata: LedgerMetadata, first: int, last: int, limits: ReadLimits, *, avoid: frozenset[str] = frozenset()
    ) -> None:
        self._metadata = metadata
        self._limits = limits
        self._avoid = avoid
        self._digester = Digester(metadata.digest_type, metadata.password)
        ranges = metadata.fragment_ranges(last)
        self._ranges = [(fragment, max(start, first), end) for fragment, start, end in ranges if end >= first]
        self._lanes: list[_Lane] = []
        self._delivered_to = first
        self._arrived_bytes = 0
        self._delivered_bytes = 0
        self._next_request = 0
        self._finished = False
        self._commands: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, Start):
            self._next_fragment()
        elif isinstance(event, ReadArrived):
            self._arrived(event, now_ms)
        elif isinstance(event, ReadEnded):
            self._ended(event)
        elif isinstance(event, Consumed):
            self._delivered_bytes -= event.nbytes
        self._check_timeouts(now_ms)
        self._deliver()
        self._request(now_ms)

    def take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        heard = [lane.heard_ms for lane in self._lanes if lane.request_id is not None]
        return None if self._finished or not heard else min(heard) + self._limits.timeout_ms

    # --- fragments and lanes

    @property
    def _fragment(self) -> Fragment:
        return self._ranges[0][0]

    @property
    def _last(self) -> int:
        return self._ranges[0][2]

    def _next_fragment(self) -> None:
        if not self._ranges:
            self._finish()
            return
        self._delivered_to = self._ranges[0][1]
        size, quorum = self._metadata.ensemble_size, self._metadata.write_quorum
        if size == quorum:
            self._add_lanes(frozenset(range(size)), self._delivered_to, {})
            return
        for start in range(0, size, quorum):
            self._add_lanes(frozenset(range(start, min(start + quorum, size))), self._delivered_to, {})

    def _add_lanes(self, residues: frozenset[int], position: int, failures: dict[int, _Failure]) -> None:
        """Give residues to slots that can serve them; several where no slot serves all."""
        left = residues
        while left:
            candidates = {slot: self._residues_of(slot) & left for slot in range(self._metadata.ensemble_size)}
            usable = [slot for slot in candidates if candidates[slot] and slot not in failures]
            if not usable:
                self._fail(position, failures, left)
                return
            slot = min(usable, key=lambda s: (self._is_avoided(s), -len(candidates[s]), self._distance(s, position)))
            lane = _Lane(slot, candidates[slot], position, failures=dict(failures))
            lane.position = self._next_position(lane, position)
            self._lanes.append(lane)
            left = left - candidates[slot]

    def _residues_of(self, slot: int) -> frozenset[int]:
        size, quorum = self._metadata.ensemble_size, self._metadata.write_quorum
        return frozenset((slot - k) % size for k in range(quorum))

    def _is_avoided(self, slot: int) -> bool:
        return self._fragment.ensemble[slot] in self._avoid

    def _distance(self, slot: int, position: int) -> int:
        """Spreads the readers of different ledgers and ranges over the replicas."""
        return (slot - self._metadata.ledger_id - position) % self._metadata.ensemble_size

    # --- requests and answers

    def _request(self, now_ms: int) -> None:
        """Keep every unfinished lane busy while the consumer keeps up."""
        lowest = min((lane.position for lane in self._lanes if lane.residues), default=0)
        for lane in self._lanes:
            # What the lowest lane waits for is what the others' bytes wait for: those must not hold it up.
            held = self._delivered_bytes + (self._arrived_bytes if lane.position > lowest else 0)
            if self._finished or held >= self._limits.ahead_bytes:
                continue
            if lane.request_id is None and lane.position <= self._last:
                self._next_request += 1
                lane.request_id, lane.requested, lane.heard_ms = self._next_request, lane.position, now_ms
                pattern = self._metadata.slot_pattern(lane.slot)
                bookie_id = self._fragment.ensemble[lane.slot]
                self._commands.append(
                    SendRead(self._next_request, bookie_id, lane.position, self._last, pattern, self._limits.request_bytes)
                )

    def _lane_of(self, request_id: int) -> _Lane | None:
        return next((lane for lane in self._lanes if lane.request_id == request_id), None)

    def _arrived(self, event: ReadArrived, now_ms: int) -> None:
        lane = self._lane_of(event.request_id)
        if lane is None:
            return
        lane.heard_ms = now_ms
        try:
            batch = self._of_lane(lane, decode(event.batch))
        except CorruptionError as problem:
            self._move(lane, _Failure(Status.DAMAGED, str(problem)))
            return
        good = batch.matching(self._digester)
        expected = self._expected_ids(lane, len(batch))
        count = int(np.argmin(np.append(good & (batch.entry_ids == expected[: len(batch)]), False)))
        if count:
            self._accept(lane, batch.slice(0, count))
        if count < len(batch):
            self._move(lane, _wrong_entry(int(batch.entry_ids[count]), int(expected[count])))

    def _of_lane(self, lane: _Lane, batch: EntryBatch) -> EntryBatch:
        """What the lane wants of a decoded batch."""
        if batch.ledger_id != self._metadata.ledger_id:
            raise CorruptionError("an answer to a read", f"it is of ledger {batch.ledger_id}")
        ids = batch.entry_ids
        wanted = (ids >= lane.position) & (ids <= self._last)
        if len(lane.residues) < self._metadata.ensemble_size:
            wanted &= np.isin(ids % self._metadata.ensemble_size, sorted(lane.residues))
        return batch.select(wanted)

    def _expected_ids(self, lane: _Lane, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The next ``count`` ids that the lane has to get, at least as many as there are up to the end."""
        size = self._metadata.ensemble_size
        rounds = np.arange(lane.position, lane.position + (count // len(lane.residues) + 2) * size, dtype=np.int64)
        return rounds[np.isin(rounds % size, sorted(lane.residues))][:count]

    def _accept(self, lane: _Lane, batch: EntryBatch) -> None:
        lane.arrived.append(batch)
        lane.position = self._next_position(lane, int(batch.entry_ids[-1]) + 1)
        lane.failures.clear()
        self._arrived_bytes += batch.nbytes

    def _next_position(self, lane: _Lane, after: int) -> int:
        """The next id of the lane from ``after`` on, so that finished lanes do not hold up the others."""
        size = self._metadata.ensemble_size
        return next((i for i in range(after, after + size) if i % size in lane.residues), after)

    def _ended(self, event: ReadEnded) -> None:
        lane = self._lane_of(event.request_id)
        if lane is None:
            return
        lane.request_id = None
        if event.status is Status.UNAUTHORIZED:
            self._finish(UnauthorizedAccessError(self._metadata.ledger_id))
        elif lane.position > lane.requested and event.entry_id is not None and event.entry_id < lane.position:
            return  # about an entry of the slot that another lane reads: ask on behind it
        elif event.status is not Status.OK and lane.position <= self._last:
            self._move(lane, _Failure(event.status, f"{event.status.name} {event.detail}".rstrip()))
        elif lane.position == lane.requested:
            self._move(lane, _Failure(Status.UNKNOWN, "an answer without any entry"))

    def _check_timeouts(self, now_ms: int) -> None:
        for lane in list(self._lanes):
            if lane.request_id is not None and now_ms >= lane.heard_ms + self._limits.timeout_ms:
                self._move(lane, _Failure(Status.UNKNOWN, f"no answer for {self._limits.timeout_ms / 1000:g} s"))

    def _move(self, lane: _Lane, failure: _Failure) -> None:
        """Leave the lane's slot; what it already brought stays, its residues go on elsewhere."""
        if lane.request_id is not None:
            self._commands.append(CancelRead(lane.request_id))
            lane.request_id = None
        residues, lane.residues = lane.residues, frozenset()
        known = {**lane.failures, lane.slot: failure}
        self._lanes.remove(lane)
        if lane.arrived:
            self._lanes.append(_Lane(lane.slot, frozenset(), self._last + 1, arrived=lane.arrived))
        failed = frozenset({lane.position % self._metadata.ensemble_size}) if failure.is_of_entry else residues
        if len(residues) == self._metadata.ensemble_size:
            failed = residues  # without striping one lane reads everything; the entry's failures go with the entry
        self._add_lanes(failed, lane.position, known)
        of_slots = {slot: one for slot, one in known.items() if not one.is_of_entry}
        self._add_lanes(residues - failed, lane.position, of_slots)

    # --- results

    def _deliver(self) -> None:
        """Hand out what lies below every lane's position, in order; go to the next fragment when this one is done."""
        while not self._finished and self._ranges:
            frontier = min([lane.position for lane in self._lanes if lane.residues] + [self._last + 1])
            if frontier > self._delivered_to:
                self._deliver_below(frontier)
            if frontier <= self._last:
                return
            self._lanes.clear()
            self._ranges.pop(0)
            self._next_fragment()

    def _deliver_below(self, frontier: int) -> None:
        ready: list[EntryBatch] = []
        for lane in self._lanes:
            below = [batch.select(batch.entry_ids < frontier) for batch in lane.arrived]
            above = [batch.select(batch.entry_ids >= frontier) for batch in lane.arrived]
            ready += [batch for batch in below if len(batch)]
            lane.arrived = [batch for batch in above if len(batch)]
        if len(self._lanes) > 1 and len(ready) > 1:
            ready = [_merged(ready)]
        self._commands += [Deliver(batch) for batch in ready]
        nbytes = sum(batch.nbytes for batch in ready)
        self._arrived_bytes, self._delivered_bytes = self._arrived_bytes - nbytes, self._delivered_bytes + nbytes
        self._delivered_to = frontier

    def _fail(self, position: int, failures: dict[int, _Failure], residues: frozenset[int]) -> None:
        """No slot of an entry's write set could give it. It is missing only if all of them said so."""
        size, quorum = self._metadata.ensemble_size, self._metadata.write_quorum
        entry_id = next(i for i in range(position, position + size) if i % size in residues)
        answers = [failures[slot] for slot in write_set(entry_id, size, quorum) if slot in failures]
        ledger_id = self._metadata.ledger_id
        ensemble = self._fragment.ensemble
        reasons = tuple(f"{ensemble[slot]}: {failure.detail}" for slot, failure in sorted(failures.items()))
        if all(a.status is not None and a.status.verdict is Verdict.NEGATIVE for a in answers):
            self._finish(NoSuchEntryError(ledger_id, entry_id))
        elif all(a.status is None for a in answers):
            self._finish(DigestMismatchError(ledger_id, entry_id))
        else:
            self._finish(BookieUnavailableError(ledger_id, entry_id, reasons))

    def _finish(self, error: BookKeeperError | None = None) -> None:
        if self._finished:
            return
        self._finished = True
        self._commands += [CancelRead(lane.request_id) for lane in self._lanes if lane.request_id is not None]
        self._commands.append(Finish(error=error))


def _wrong_entry(entry_id: int, expected: int) -> _Failure:
    if entry_id == expected:
        return _Failure(None, f"the digest of entry {entry_id} is wrong")
    return _Failure(Status.BAD_REQUEST, f"entry {entry_id} came where entry {expected} was due")


def _merged(batches: list[EntryBatch]) -> EntryBatch:
    """Batches of disjoint ids as one, ascending."""
    ids = np.concatenate([batch.entry_ids for batch in batches])
    order = np.argsort(ids)
    rows = pa.array(order)
    return EntryBatch(
        batches[0].ledger_id,
        ids[order],
        np.concatenate([batch.last_add_confirmed for batch in batches])[order],
        np.concatenate([batch.lengths for batch in batches])[order],
        pa.concat_arrays([batch.digests for batch in batches]).take(rows),
        pa.concat_arrays([batch.payloads for batch in batches]).take(rows),
    )
