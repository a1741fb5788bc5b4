"""The writer of a ledger: entries out, acks in, confirmation in order, close.

Rules:

* An entry's id is the next one, its LAC the highest confirmed entry when it is sent.
* An entry is confirmed once Qa bookies **of its own write set** have acked it and every earlier entry is confirmed.
  A batch is confirmed as a whole: when its last entry is.
* A bookie that refuses, breaks off or stays silent for ``add_timeout_ms`` is *failed* for this writer and gets nothing
  more. While every write set keeps Qa bookies that have not failed, the writer goes on; below that it fails, because no
  later entry could be confirmed.
* When the writer fails, the outcome of every unconfirmed entry is unknown, and nothing after it is sent.
* Close first rejects what is unconfirmed, then writes CLOSED with the last confirmed entry by compare-and-set.

States: open → failed → closing → closed, any step may be left out but the last one.

Ref: the BookKeeper protocol, "Writing to ledgers" and "Closing a ledger as a writer".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bk_spark.client.operation import (
    AddAnswered,
    Append,
    CancelAdd,
    CloseRequested,
    Command,
    Confirm,
    Event,
    Finish,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadMetadata,
    Reject,
    Release,
    SendAdd,
    WriteMetadata,
)
from bk_spark.digest import Digester
from bk_spark.entry import NO_ENTRY, EncodedBatch, EntryBatch, encode, seal
from bk_spark.errors import (
    AddQuorumTimeoutError,
    BookKeeperError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UnauthorizedAccessError,
)
from bk_spark.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.quorum import write_set
from bk_spark.wire import Status

MAX_CLOSE_TRIES = 10
"""Compare-and-sets of one close. Each lost one means that somebody else changed the metadata in between."""

MAX_UNKNOWN_TRIES = 3
"""Calls of one close that the metadata store may leave unanswered, each after its own time-out."""


@dataclass(slots=True)
class _Pending:
    """A batch on its way. ``acked`` and ``waiting`` hold slots."""

    first: int
    last: int
    length: int
    """The ledger's payload bytes up to and including ``last``."""
    token: object
    sent_ms: int
    acked: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    confirmed: bool = False


class AddEntries:
    """The state machine of one writer. ``version`` is the metadata's in the store."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        *,
        add_timeout_ms: int,
        add_quorum_timeout_ms: int,
    ) -> None:
        self.metadata = metadata
        self.last_add_pushed = NO_ENTRY
        self.last_add_confirmed = NO_ENTRY
        self.length = 0
        """Confirmed payload bytes."""
        self.error: BookKeeperError | None = None
        """Why this writer accepts no more entries; None while it does."""
        self._version = version
        self._length_pushed = 0
        self._digester = Digester(metadata.digest_type, metadata.password)
        self._timeout_ms = add_timeout_ms
        self._quorum_timeout_ms = add_quorum_timeout_ms
        self._batches: deque[_Pending] = deque()
        self._requests: dict[int, tuple[_Pending, int]] = {}
        self._next_request = 0
        self._failed: dict[int, str] = {}
        self._close_tries = 0
        self._unknown_tries = 0
        self._closing: LedgerMetadata | None = None
        self._finished = False
        self._commands: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if isinstance(event, Append):
            self._append(event, now_ms)
        elif isinstance(event, AddAnswered):
            self._answered(event)
        elif isinstance(event, CloseRequested):
            self._close()
        elif isinstance(event, (MetadataWritten, MetadataRead, MetadataGone, MetadataUnknown)):
            self._metadata_answered(event)
        self._check_timeouts(now_ms)

    def take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        times = [batch.sent_ms + self._timeout_ms for batch in self._batches if batch.waiting][:1]
        times += [batch.sent_ms + self._quorum_timeout_ms for batch in self._batches if not batch.confirmed][:1]
        return min(times, default=None)

    # --- adding

    def _append(self, event: Append, now_ms: int) -> None:
        if self.error is not None:
            self._commands += [Reject(event.token, self.error), Release(event.token)]
            return
        sealed = seal(
            self._digester,
            self.metadata.ledger_id,
            self.last_add_pushed + 1,
            event.payloads,
            length_before=self._length_pushed,
            last_add_confirmed=self.last_add_confirmed,
        )
        first, last = int(sealed.entry_ids[0]), int(sealed.entry_ids[-1])
        batch = _Pending(first, last, int(sealed.lengths[-1]), event.token, now_ms)
        self.last_add_pushed, self._length_pushed = batch.last, batch.length
        self._batches.append(batch)
        self._send(batch, sealed)

    def _send(self, batch: _Pending, sealed: EntryBatch) -> None:
        ensemble = self.metadata.last_fragment.ensemble
        for slot, encoded in enumerate(self._encoded_for_slots(sealed)):
            if encoded is None or slot in self._failed:
                continue
            self._next_request += 1
            batch.waiting.add(slot)
            self._requests[self._next_request] = (batch, slot)
            self._commands.append(SendAdd(self._next_request, ensemble[slot], encoded))

    def _encoded_for_slots(self, sealed: EntryBatch) -> list[EncodedBatch | None]:
        """What each slot is sent: without striping one and the same batch, encoded once."""
        size, digest_type = self.metadata.ensemble_size, self.metadata.digest_type
        if size == self.metadata.write_quorum:
            return [encode(sealed, digest_type)] * size
        return [encode(sealed, digest_type, self.metadata.slot_pattern(slot)) for slot in range(size)]

    def _answered(self, event: AddAnswered) -> None:
        batch, slot = self._requests.pop(event.request_id, (None, -1))
        if batch is None:
            return
        batch.waiting.discard(slot)
        if event.status is Status.OK:
            batch.acked.add(slot)
            self._confirm_in_order()
        elif event.status is Status.UNAUTHORIZED:
            self._fail(UnauthorizedAccessError(self.metadata.ledger_id))
        else:
            self._fail_slot(slot, f"{event.status.name} {event.detail}".rstrip())
        self._release_settled()

    def _confirm_in_order(self) -> None:
        for batch in self._batches:
            if batch.confirmed:
                continue
            if self.error is not None or not self._has_ack_quorum(batch):
                return
            batch.confirmed = True
            self.last_add_confirmed, self.length = batch.last, batch.length
            self._commands.append(Confirm(batch.token, batch.first))

    def _has_ack_quorum(self, batch: _Pending) -> bool:
        return all(
            len(batch.acked.intersection(slots)) >= self.metadata.ack_quorum
            for slots in self._write_sets(batch.first, batch.last)
        )

    def _write_sets(self, first: int, last: int) -> list[tuple[int, ...]]:
        """The distinct write sets of some consecutive entries."""
        size, quorum = self.metadata.ensemble_size, self.metadata.write_quorum
        if size == quorum:
            return [tuple(range(size))]
        return [write_set(entry_id, size, quorum) for entry_id in range(first, min(last, first + size - 1) + 1)]

    def _release_settled(self) -> None:
        """Give back the window of the batches that no bookie owes an answer for, oldest first."""
        while self._batches and not self._batches[0].waiting and (self._batches[0].confirmed or self.error is not None):
            self._commands.append(Release(self._batches.popleft().token))

    # --- failing

    def _fail_slot(self, slot: int, reason: str) -> None:
        self._failed.setdefault(slot, reason)
        for request_id in [number for number, (_, other) in self._requests.items() if other == slot]:
            batch, _ = self._requests.pop(request_id)
            batch.waiting.discard(slot)
            self._commands.append(CancelAdd(request_id))
        every_write_set = self._write_sets(0, self.metadata.ensemble_size - 1)
        left = min(sum(s not in self._failed for s in slots) for slots in every_write_set)
        if left < self.metadata.ack_quorum:
            self._fail(NotEnoughBookiesError(self.metadata.ack_quorum, left, self._purpose()))

    def _purpose(self) -> str:
        ensemble = self.metadata.last_fragment.ensemble
        reasons = ", ".join(f"{ensemble[slot]}: {reason}" for slot, reason in sorted(self._failed.items()))
        return f"an ack quorum of ledger {self.metadata.ledger_id} (failed: {reasons})"

    def _fail(self, error: BookKeeperError) -> None:
        """Accept nothing more and reject what is unconfirmed: its outcome is unknown."""
        if self.error is not None:
            return
        self.error = error
        self._commands += [CancelAdd(request_id) for request_id in self._requests]
        self._requests.clear()
        for batch in self._batches:
            batch.waiting.clear()
            if not batch.confirmed:
                self._commands.append(Reject(batch.token, error))
        self._release_settled()

    def _check_timeouts(self, now_ms: int) -> None:
        for batch in list(self._batches):
            if now_ms < batch.sent_ms + self._timeout_ms:
                break
            for slot in sorted(batch.waiting):
                self._fail_slot(slot, f"no answer for {self._timeout_ms / 1000:g} s")
        unconfirmed = next((b for b in self._batches if not b.confirmed), None)
        if unconfirmed is not None and now_ms >= unconfirmed.sent_ms + self._quorum_timeout_ms:
            self._fail(AddQuorumTimeoutError(self.metadata.ledger_id, unconfirmed.first, self._quorum_timeout_ms / 1000))
        self._release_settled()

    # --- closing

    def _close(self) -> None:
        self._fail(LedgerClosedError(self.metadata.ledger_id))
        self._write_closed(self.metadata, self._version)

    def _write_closed(self, current: LedgerMetadata, version: int) -> None:
        """Close what the store holds now: the edits of others to older fragments stay."""
        self._close_tries += 1
        if self._close_tries > MAX_CLOSE_TRIES:
            problem = f"closing it lost {MAX_CLOSE_TRIES} compare-and-sets in a row"
            self._finish(MetadataConflictError(f"the metadata of ledger {self.metadata.ledger_id}", problem))
            return
        self._closing, self._version = current.closed_at(self.last_add_confirmed, self.length), version
        self._commands.append(WriteMetadata(self._closing, version))

    def _metadata_answered(self, event: MetadataWritten | MetadataRead | MetadataGone | MetadataUnknown) -> None:
        if self._finished:
            return
        if isinstance(event, MetadataWritten):
            self.metadata, self._version = self._closing or self.metadata, event.version
            self._finish(None)
        elif isinstance(event, MetadataGone):
            self._finish(NoSuchLedgerError(self.metadata.ledger_id))
        elif isinstance(event, MetadataUnknown):
            self._reread(event.error)
        else:
            self._found(event.metadata, event.version)

    def _reread(self, error: BookKeeperError) -> None:
        self._unknown_tries += 1
        if self._unknown_tries > MAX_UNKNOWN_TRIES:
            self._finish(error)
        else:
            self._commands.append(ReadMetadata())

    def _found(self, current: LedgerMetadata, version: int) -> None:
        """The store holds something else than expected: decide by its state."""
        if current.state is LedgerState.OPEN:
            self._write_closed(current, version)
        elif current.state is LedgerState.IN_RECOVERY:
            self._finish(LedgerFencedError(self.metadata.ledger_id))
        elif (current.last_entry_id, current.length) == (self.last_add_confirmed, self.length):
            self.metadata, self._version = current, version
            self._finish(None)
        else:
            end = f"it was closed at entry {current.last_entry_id}, this writer confirmed up to {self.last_add_confirmed}"
            self._finish(MetadataConflictError(f"the metadata of ledger {self.metadata.ledger_id}", end))

    def _finish(self, error: BookKeeperError | None) -> None:
        self._finished = True
        self._commands.append(Finish(error=error))
