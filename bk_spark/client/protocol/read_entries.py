"""Reading a range of a ledger: every entry verified, in order, from other replicas if some fail.

The range is cut at fragment borders. Within a fragment the reader keeps lanes (``read_lanes.py``). Without striping there
is one lane for everything; with striping a few lanes on different bookies cover all residues, and their entries are
merged. Entries below the position of every lane are complete, and are delivered.

If a lane's bookie breaks off, stays silent, or sends an entry whose digest is wrong, the next slots of the write sets take over
the lane's residues, at the entry that was not obtained. If a lane's bookie is silent for a while, the lane asks another slot as
well, and continues with the one that brings its next entry first.

If no slot of an entry's write set could give it, the reader looks at the metadata again: ensembles change while a ledger is
written, and closed ledgers are re-replicated (docs/rules.md, protocol rule 57; situation 51). If another ensemble holds
the entry now, the read continues there, along the new metadata. Otherwise it fails: with "no such entry" only if **every**
slot of the write set said so, else as unknown. What was delivered stays delivered.

The range may lie beyond the LAC: this state machine never asks for the LAC, and never moves it (protocol rule 14). The LAC that
entries carry is delivered as data and not used.

Memory: a new request is sent only while the bytes that were delivered and not yet consumed are below the read-ahead. A
speculative request adds at most one answer for each lane. Requests grow with quick answers (``read_lanes.py``).

Ref: the BookKeeper protocol, "Writing to ledgers" (reading up to the LAC); BP-46, "A note on Quorums" (read entry).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.read_lanes import (
    Arrivals,
    Failure,
    Lane,
    Request,
    RequestSize,
    SlotChoice,
    Striping,
    Verifier,
    failure_of_end,
)
from bk_spark.entries.batch import EntryBatch
from bk_spark.errors import BookKeeperError, NoSuchEntryError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.wire.messages import Status

MAX_METADATA_READS = 3
"""Looks at the metadata without an entry in between. After each the read continues only if it found another ensemble."""


class ReadEntries(sm.StateMachine):
    """The state machine of one read from ``first`` to ``last``, inclusive. ``avoid`` names bookies to ask last.

    ``numbers`` gives the ids of requests, if this is a part of another state machine.

    Finish comes without an error once everything is delivered, else with NoSuchEntryError, NoSuchLedgerError,
    DigestMismatchError, BookieUnavailableError or the error of the metadata store.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        limits: ReadLimits,
        *,
        avoid: frozenset[str] = frozenset(),
        numbers: Iterator[int] | None = None,
    ) -> None:
        super().__init__()
        self._metadata = metadata
        self._limits = limits
        self._avoid = avoid
        self._end = last
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._verifier = Verifier(metadata)
        self._ranges: list[tuple[Fragment, int, int]] = []
        self._lanes: list[Lane] = []
        self._arrivals = Arrivals()
        self._delivered_to = first
        self._delivered_bytes = 0
        self._request_size = RequestSize(limits.request_bytes)
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._metadata_reads = 0
        self._blocked: tuple[int, BookKeeperError] | None = None
        """While the metadata is read: the entry that no slot could give, and the error unless the metadata has changed."""

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest that was read; the original one if there was no need to read it."""
        return self._metadata

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, sm.Consumed):
            self._delivered_bytes -= event.nbytes
            self._request(now_ms)
            return
        if isinstance(event, sm.Start):
            self._cut_ranges()
        elif isinstance(event, sm.ReadEvent):
            self._on_read(event, now_ms)
        elif isinstance(event, sm.MetadataLook):
            self._on_metadata(event)
        self._check_timeouts(now_ms)
        self._deliver()
        self._request(now_ms)
        self._speculate(now_ms)

    def deadline_ms(self) -> int | None:
        lanes = self._unfinished()
        requests = [request for lane in lanes for request in lane.requests if not request.is_waiting]
        times = [request.heard_ms + self._limits.timeout_ms for request in requests]
        times += [due for lane in lanes if (due := self._speculative_due_ms(lane)) is not None]
        return min(times, default=None)

    # --- fragments

    @property
    def _last(self) -> int:
        return self._ranges[0][2]

    @property
    def _is_halted(self) -> bool:
        return self._finished or self._blocked is not None

    def _cut_ranges(self) -> None:
        """Cut the rest of the range along the metadata, up to the end of a closed ledger."""
        closed_at = self._metadata.last_entry_id
        ranges = self._metadata.fragment_ranges(self._end if closed_at is None else min(self._end, closed_at))
        self._ranges = [(f, max(first, self._delivered_to), last) for f, first, last in ranges if last >= self._delivered_to]
        self._next_fragment()

    def _next_fragment(self) -> None:
        if not self._ranges:
            missing = NoSuchEntryError(self._metadata.ledger_id, self._delivered_to)
            self._end_read(missing if self._delivered_to <= self._end else None)
            return
        ensemble = self._ranges[0][0].ensemble
        self._choice = SlotChoice(self._metadata.ledger_id, self._striping, ensemble, self._avoid)
        for residues in self._striping.starts():
            self._add_lanes(residues, self._delivered_to, {})

    # --- lanes

    def _add_lanes(self, residues: frozenset[int], position: int, failures: dict[int, Failure]) -> None:
        if self._is_halted:
            return
        lanes, unserved = self._choice.cover(residues, position, failures)
        self._lanes += lanes
        if unserved:
            self._fail(self._striping.next_id(unserved, position), failures)

    def _unfinished(self) -> list[Lane]:
        return [lane for lane in self._lanes if lane.position <= self._last]

    def _leave(self, lane: Lane, request: Request, failure: Failure) -> None:
        """A slot failed the lane: continue with the lane's other request, or with other slots, at the entry not obtained."""
        self._cancel(request)
        lane.failures[request.slot] = failure
        if request is lane.beside:
            lane.beside = None
        elif lane.beside is not None:
            rest = lane.prefer_beside(self._striping)
            self._add_lanes(rest, lane.position, lane.failures_of_slots)
        else:
            self._reassign(lane)

    def _reassign(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        failed = lane.failed_residues(self._striping)
        self._add_lanes(failed, lane.position, lane.failures)
        self._add_lanes(lane.residues - failed, lane.position, lane.failures_of_slots)

    # --- requests

    def _request(self, now_ms: int) -> None:
        """Send a request for every idle, unfinished lane while the consumer keeps up."""
        if self._is_halted:
            return
        lanes = self._unfinished()
        lowest = min((lane.position for lane in lanes), default=0)
        for lane in lanes:
            # The bytes that arrived on other lanes wait for the lowest lane, so they must not hold it up.
            held = self._delivered_bytes + (self._arrivals.nbytes if lane.position > lowest else 0)
            if lane.own is None and held < self._limits.ahead_bytes:
                lane.own = self._send(lane.slot, lane.position, now_ms)

    def _speculate(self, now_ms: int) -> None:
        """Ask another slot beside a silent one, one at a time for each lane (situation 44)."""
        for lane in self._unfinished():
            due_ms = self._speculative_due_ms(lane)
            if due_ms is not None and now_ms >= due_ms:
                slot = self._choice.best(self._choice.others(lane), lane.residues, lane.position)
                lane.beside = self._send(slot, lane.position, now_ms)

    def _speculative_due_ms(self, lane: Lane) -> int | None:
        """When to ask another slot beside the lane's own request; None if that was done, or there is no other slot."""
        if lane.own is None or lane.beside is not None or not self._choice.others(lane):
            return None
        return lane.own.heard_ms + self._limits.speculative_ms

    def _send(self, slot: int, position: int, now_ms: int) -> Request:
        request_id = next(self._numbers)
        pattern = self._metadata.slot_pattern(slot)
        bookie_id = self._choice.ensemble[slot]
        self._commands.append(sm.SendRead(request_id, bookie_id, position, self._last, pattern, self._request_size.nbytes))
        return Request(request_id, slot, position, now_ms, now_ms)

    def _cancel(self, request: Request | None) -> None:
        if request is not None and request.is_open:
            self._commands.append(sm.CancelRead(request.request_id))
            request.is_open = False

    def _cancel_all(self, lane: Lane) -> None:
        for request in lane.requests:
            self._cancel(request)

    def _check_timeouts(self, now_ms: int) -> None:
        for lane in self._unfinished():
            for request in lane.requests:
                if request.is_silent(self._limits.timeout_ms, now_ms) and not self._is_halted:
                    self._leave(lane, request, Failure(Status.UNKNOWN, f"no answer for {self._limits.timeout_ms / 1000:g} s"))

    # --- answers

    def _on_read(self, event: sm.ReadEvent, now_ms: int) -> None:
        pairs = ((lane, request) for lane in self._unfinished() for request in lane.requests)
        found = next((pair for pair in pairs if pair[1].request_id == event.request_id), None)
        if found is None:
            return
        if isinstance(event, sm.ReadArrived):
            self._on_arrived(event, *found, now_ms)
        elif isinstance(event, sm.ReadEnded):
            self._on_ended(event, *found, now_ms)
        else:  # while its read waits a bookie is not given up; yet the lane may ask another one beside it
            found[1].went_on(event, now_ms)

    def _on_arrived(self, event: sm.ReadArrived, lane: Lane, request: Request, now_ms: int) -> None:
        residues = lane.residues & self._striping.residues_of(request.slot)
        good, failure = self._verifier.good_prefix(event.batch, residues, lane.position, self._last)
        request.useless = 0 if good is not None else request.useless + 1
        if request.useless < self._striping.ensemble_size:  # the next due entry is among as many ids
            request.heard_ms = now_ms
        if good is not None:
            self._go_on_with(lane, request)
            self._accept(lane, good)
        if failure is not None:
            self._leave(lane, request, failure)

    def _go_on_with(self, lane: Lane, request: Request) -> None:
        """The request brought the lane's next entry: keep the other one only for residues that this slot does not hold."""
        if request is not lane.beside:
            self._cancel(lane.beside)
            lane.beside = None
            return
        slot, own = lane.slot, lane.own
        self._ask_last(slot)
        rest = lane.prefer_beside(self._striping)
        position = self._striping.next_id(rest, lane.position) if rest else None
        if position is not None and position <= self._last:
            self._lanes.append(Lane(slot, rest, position, lane.failures_of_slots, own))
        else:
            self._cancel(own)

    def _ask_last(self, slot: int) -> None:
        """This slot was silent and lost the race: asked first again it would delay every entry that the winner lacks."""
        self._avoid |= {self._choice.ensemble[slot]}
        self._choice = replace(self._choice, avoid=self._avoid)

    def _accept(self, lane: Lane, batch: EntryBatch) -> None:
        self._arrivals.add(batch)
        lane.position = self._striping.next_id(lane.residues, int(batch.entry_ids[-1]) + 1)
        lane.failures.clear()
        if lane.position > self._last:
            # The end of the answer is not needed; an open answer would keep a place at the bookie.
            self._cancel_all(lane)

    def _on_ended(self, event: sm.ReadEnded, lane: Lane, request: Request, now_ms: int) -> None:
        request.is_open = False
        failure = failure_of_end(event, request.first, lane.position)
        if failure is not None:
            self._leave(lane, request, failure)
        else:
            lane.own = None
            self._request_size.answered(now_ms - request.sent_ms)

    # --- results

    def _deliver(self) -> None:
        """Deliver the entries below every lane's position, in order; start the next fragment when this one is done."""
        while not self._is_halted and self._ranges:
            self._deliver_below(min([lane.position for lane in self._lanes] + [self._last + 1]))
            if self._delivered_to <= self._last:
                return
            self._lanes.clear()
            self._ranges.pop(0)
            self._next_fragment()

    def _deliver_below(self, frontier: int) -> None:
        if frontier <= self._delivered_to:
            return
        ready = self._arrivals.take_below(frontier)
        self._commands += [sm.Deliver(batch) for batch in ready]
        self._delivered_bytes += sum(batch.nbytes for batch in ready)
        self._delivered_to = frontier
        self._metadata_reads = 0

    def _fail(self, entry_id: int, failures: dict[int, Failure]) -> None:
        """No slot of an entry's write set could give it: the read fails unless another ensemble holds it by now."""
        self._deliver_below(min([entry_id, *(lane.position for lane in self._lanes)]))
        error = self._choice.verdict(entry_id, failures)
        self._drop_lanes()
        if self._metadata_reads == MAX_METADATA_READS:
            self._end_read(error)
            return
        self._metadata_reads += 1
        self._blocked = entry_id, error
        self._commands.append(sm.ReadMetadata(is_synced=True))  # what a lagging server shows may be where the entry was

    @property
    def is_looking(self) -> bool:
        """Whether an answer to ReadMetadata is still to come."""
        return self._blocked is not None

    def _on_metadata(self, event: sm.MetadataLook) -> None:
        assert self._blocked is not None, "the metadata is read only for an entry that no slot could give"
        (entry_id, error), self._blocked = self._blocked, None
        if isinstance(event, sm.MetadataGone):
            self._end_read(NoSuchLedgerError(self._metadata.ledger_id))
        elif isinstance(event, sm.MetadataUnknown):
            # Perhaps other replicas should hold the entry by now, so that these lack it does not mean "no such entry".
            self._end_read(event.error if isinstance(error, NoSuchEntryError) else error)
        else:
            self._follow(event.metadata, entry_id, error)

    def _follow(self, metadata: LedgerMetadata, entry_id: int, error: BookKeeperError) -> None:
        self._metadata = metadata
        is_beyond_end = metadata.last_entry_id is not None and entry_id > metadata.last_entry_id
        if not is_beyond_end and metadata.fragment_of(entry_id).ensemble == self._choice.ensemble:
            self._end_read(error)
        else:
            self._cut_ranges()

    def _drop_lanes(self) -> None:
        """Entries that arrived beyond the first missing one are dropped, too, and asked for again if the read continues."""
        for lane in self._lanes:
            self._cancel_all(lane)
        self._lanes.clear()
        self._arrivals = Arrivals()

    def _end_read(self, error: BookKeeperError | None) -> None:
        self._drop_lanes()
        self._finish(error=error)
