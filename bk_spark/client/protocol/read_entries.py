"""Reading a range of a ledger: every entry verified, in order, from other replicas if some fail.

The range is cut at fragment borders. Within a fragment the reader reads stripes (``stripe_reads.py``). Without striping there
is one stripe for everything; with striping a few stripes on different bookies cover all residues, and their entries are
merged. Entries below the position of every stripe are complete, and are delivered.

If a stripe's bookie breaks off, stays silent, or sends an entry whose digest is wrong, the next slots of the write sets take
over the stripe's residues, at the entry that was not obtained. If a stripe's bookie is silent for a while, the read of the
stripe asks another slot as well, and continues with the one that brings its next entry first.

If no slot of an entry's write set could give it, the reader looks at the metadata again: ensembles change while a ledger is
written, and closed ledgers are re-replicated (docs/rules.md, protocol rule 57; situation 51). If another ensemble holds
the entry now, the read continues there, along the new metadata. Otherwise it fails: with "no such entry" only if **every**
slot of the write set said so, else as unknown. What was delivered stays delivered.

The range may lie beyond the LAC: this state machine never asks for the LAC, and never moves it (protocol rule 14). The LAC that
entries carry is delivered as data and not used.

Memory: a new request is sent only while the bytes that were delivered and not yet consumed are below the read-ahead. A
speculative request adds at most one answer for each stripe. Requests grow with quick answers (``stripe_reads.py``).

Ref: the BookKeeper protocol, "Writing to ledgers" (reading up to the LAC); BP-46, "A note on Quorums" (read entry).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.stripe_reads import (
    Arrivals,
    Failure,
    Request,
    RequestSize,
    SlotChoice,
    StripeRead,
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
        self._stripes: list[StripeRead] = []
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
            assert self._delivered_bytes >= 0, "no more is consumed than was delivered"
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
        stripes = self._unfinished()
        requests = [request for stripe in stripes for request in stripe.requests if not request.is_waiting]
        times = [request.heard_ms + self._limits.timeout_ms for request in requests]
        times += [due for stripe in stripes if (due := self._speculative_due_ms(stripe)) is not None]
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
        assert not self._stripes
        assert not self._arrivals.nbytes, "all that came of the fragment before was delivered"
        if not self._ranges:
            missing = NoSuchEntryError(self._metadata.ledger_id, self._delivered_to)
            self._end_read(missing if self._delivered_to <= self._end else None)
            return
        ensemble = self._ranges[0][0].ensemble
        self._choice = SlotChoice(self._metadata.ledger_id, self._striping, ensemble, self._avoid)
        for residues in self._striping.starts():
            self._add_stripes(residues, self._delivered_to, {})

    # --- stripes

    def _add_stripes(self, residues: frozenset[int], position: int, failures: dict[int, Failure]) -> None:
        if self._is_halted:
            return
        stripes, unserved = self._choice.cover(residues, position, failures)
        self._stripes += stripes
        if unserved:
            self._fail(self._striping.next_id(unserved, position), failures)

    def _unfinished(self) -> list[StripeRead]:
        return [stripe for stripe in self._stripes if stripe.position <= self._last]

    def _leave(self, stripe: StripeRead, request: Request, failure: Failure) -> None:
        """A slot failed the stripe: continue with its other request, or with other slots, at the entry not obtained."""
        self._cancel(request)
        stripe.failures[request.slot] = failure
        if request is stripe.beside:
            stripe.beside = None
        elif stripe.beside is not None:
            rest = stripe.prefer_beside(self._striping)
            self._add_stripes(rest, stripe.position, stripe.failures_of_slots)
        else:
            self._reassign(stripe)

    def _reassign(self, stripe: StripeRead) -> None:
        self._stripes.remove(stripe)
        failed = stripe.failed_residues(self._striping)
        self._add_stripes(failed, stripe.position, stripe.failures)
        self._add_stripes(stripe.residues - failed, stripe.position, stripe.failures_of_slots)

    # --- requests

    def _request(self, now_ms: int) -> None:
        """Send a request for every idle, unfinished stripe while the consumer keeps up."""
        if self._is_halted:
            return
        stripes = self._unfinished()
        lowest = min((stripe.position for stripe in stripes), default=0)
        for stripe in stripes:
            # The bytes that arrived on other stripes wait for the lowest stripe, so they must not hold it up.
            held = self._delivered_bytes + (self._arrivals.nbytes if stripe.position > lowest else 0)
            if stripe.own is None and held < self._limits.ahead_bytes:
                stripe.own = self._send(stripe.slot, stripe.position, now_ms)

    def _speculate(self, now_ms: int) -> None:
        """Ask another slot beside a silent one, one at a time for each stripe (situation 44)."""
        for stripe in self._unfinished():
            due_ms = self._speculative_due_ms(stripe)
            if due_ms is not None and now_ms >= due_ms:
                slot = self._choice.best(self._choice.others(stripe), stripe.residues, stripe.position)
                stripe.beside = self._send(slot, stripe.position, now_ms)

    def _speculative_due_ms(self, stripe: StripeRead) -> int | None:
        """When to ask another slot beside the stripe's own request; None if that was done, or there is no other slot."""
        if stripe.own is None or stripe.beside is not None or not self._choice.others(stripe):
            return None
        return stripe.own.heard_ms + self._limits.speculative_ms

    def _send(self, slot: int, position: int, now_ms: int) -> Request:
        assert self._delivered_to <= position <= self._last
        request_id = next(self._numbers)
        pattern = self._metadata.slot_pattern(slot)
        bookie_id = self._choice.ensemble[slot]
        self._commands.append(sm.SendRead(request_id, bookie_id, position, self._last, pattern, self._request_size.nbytes))
        return Request(request_id, slot, position, now_ms, now_ms)

    def _cancel(self, request: Request | None) -> None:
        if request is not None and request.is_open:
            self._commands.append(sm.CancelRead(request.request_id))
            request.is_open = False

    def _cancel_all(self, stripe: StripeRead) -> None:
        for request in stripe.requests:
            self._cancel(request)

    def _check_timeouts(self, now_ms: int) -> None:
        for stripe in self._unfinished():
            for request in stripe.requests:
                if request.is_silent(self._limits.timeout_ms, now_ms) and not self._is_halted:
                    self._leave(stripe, request, Failure(Status.UNKNOWN, f"no answer for {self._limits.timeout_ms / 1000:g} s"))

    # --- answers

    def _on_read(self, event: sm.ReadEvent, now_ms: int) -> None:
        pairs = ((stripe, request) for stripe in self._unfinished() for request in stripe.requests)
        found = next((pair for pair in pairs if pair[1].request_id == event.request_id), None)
        if found is None:
            return
        if isinstance(event, sm.ReadArrived):
            self._on_arrived(event, *found, now_ms)
        elif isinstance(event, sm.ReadEnded):
            self._on_ended(event, *found, now_ms)
        else:  # while its read waits a bookie is not given up; yet the stripe may ask another one beside it
            found[1].went_on(event, now_ms)

    def _on_arrived(self, event: sm.ReadArrived, stripe: StripeRead, request: Request, now_ms: int) -> None:
        residues = stripe.residues & self._striping.residues_of(request.slot)
        good, failure = self._verifier.good_prefix(event.batch, residues, stripe.position, self._last)
        request.useless = 0 if good is not None else request.useless + 1
        if request.useless < self._striping.ensemble_size:  # the next due entry is among as many ids
            request.heard_ms = now_ms
        if good is not None:
            self._go_on_with(stripe, request)
            self._accept(stripe, good)
        if failure is not None:
            self._leave(stripe, request, failure)

    def _go_on_with(self, stripe: StripeRead, request: Request) -> None:
        """The request brought the stripe's next entry: keep the other one only for residues that this slot does not hold."""
        if request is not stripe.beside:
            self._cancel(stripe.beside)
            stripe.beside = None
            return
        slot, own = stripe.slot, stripe.own
        self._ask_last(slot)
        rest = stripe.prefer_beside(self._striping)
        position = self._striping.next_id(rest, stripe.position) if rest else None
        if position is not None and position <= self._last:
            self._stripes.append(StripeRead(slot, rest, position, stripe.failures_of_slots, own))
        else:
            self._cancel(own)

    def _ask_last(self, slot: int) -> None:
        """This slot was silent and lost the race: asked first again it would delay every entry that the winner lacks."""
        self._avoid |= {self._choice.ensemble[slot]}
        self._choice = replace(self._choice, avoid=self._avoid)

    def _accept(self, stripe: StripeRead, batch: EntryBatch) -> None:
        assert int(batch.entry_ids[0]) == stripe.position, "a stripe goes on where it stands"
        self._arrivals.add(batch)
        stripe.position = self._striping.next_id(stripe.residues, int(batch.entry_ids[-1]) + 1)
        stripe.failures.clear()
        if stripe.position > self._last:
            # The end of the answer is not needed; an open answer would keep a place at the bookie.
            self._cancel_all(stripe)

    def _on_ended(self, event: sm.ReadEnded, stripe: StripeRead, request: Request, now_ms: int) -> None:
        request.is_open = False
        failure = failure_of_end(event, request.first, stripe.position)
        if failure is not None:
            self._leave(stripe, request, failure)
        else:
            stripe.own = None
            self._request_size.answered(now_ms - request.sent_ms)

    # --- results

    def _deliver(self) -> None:
        """Deliver the entries below every stripe's position, in order; start the next fragment when this one is done."""
        while not self._is_halted and self._ranges:
            self._deliver_below(min([stripe.position for stripe in self._stripes] + [self._last + 1]))
            if self._delivered_to <= self._last:
                return
            self._stripes.clear()
            self._ranges.pop(0)
            self._next_fragment()

    def _deliver_below(self, frontier: int) -> None:
        if frontier <= self._delivered_to:
            return
        ready = self._arrivals.take_below(frontier)
        assert sum(map(len, ready)) == frontier - self._delivered_to, "each entry is delivered once, and none is left out"
        assert int(ready[0].entry_ids[0]) == self._delivered_to
        self._commands += [sm.Deliver(batch) for batch in ready]
        self._delivered_bytes += sum(batch.nbytes for batch in ready)
        self._delivered_to = frontier
        self._metadata_reads = 0

    def _fail(self, entry_id: int, failures: dict[int, Failure]) -> None:
        """No slot of an entry's write set could give it: the read fails unless another ensemble holds it by now."""
        self._deliver_below(min([entry_id, *(stripe.position for stripe in self._stripes)]))
        error = self._choice.verdict(entry_id, failures)
        self._drop_stripes()
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

    def _drop_stripes(self) -> None:
        """Entries that arrived beyond the first missing one are dropped, too, and asked for again if the read continues."""
        for stripe in self._stripes:
            self._cancel_all(stripe)
        self._stripes.clear()
        self._arrivals = Arrivals()

    def _end_read(self, error: BookKeeperError | None) -> None:
        self._drop_stripes()
        self._finish(error=error)
