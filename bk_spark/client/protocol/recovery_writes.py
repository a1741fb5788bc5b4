"""The write-backs of a recovery: every entry found is sent to its whole write set again, and is confirmed by Qa acks.

Before that the entry may be on one bookie only, and a ledger closed behind it would lose it with that bookie. An entry that
cannot be written back fails the recovery; the ledger is never closed shorter instead.

A new bookie may join the ensemble meanwhile. The new ensemble stays in ``metadata`` here, until the closing write stores it.
Each entry gets the length that the payloads add up to, whatever its copy says: Apache's writer that was fenced takes back the
lengths of the adds that failed, but not their ids, and then sends further adds whose lengths lack those bytes.
All entries carry the LAC at which recovery began: another recoverer may still end the ledger anywhere behind that LAC, and no
bookie may ever show a LAC beyond the end.

An ack may mean memory only. The bookies of the recovery ensemble stay named throughout, so limbo protects what they acked. A
bookie that *joined* is named by the closing write at the earliest, so it is forced first, in the boot that acked
(``force_adds.py``). If one has been started again, or does not answer, its acks have counted in vain: ``lost`` says so, and
the recovery starts anew.

Ref: docs/rules.md, protocol rules 9, 11 and 61, "Recovery's writes".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.force_adds import ForcedCopies
from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.pending_adds import OWED_PATIENCE_MS
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, EntryBatch
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import Status


class RecoveryWrites:
    """Writes back the entries after ``floor``, up to where the ledger's payload bytes are ``length``."""

    def __init__(
        self, metadata: LedgerMetadata, limits: RecoverLimits, numbers: Iterator[int], *, floor: int, length: int
    ) -> None:
        """``numbers`` gives the ids of requests."""
        self.length = length
        """Payload bytes up to the last entry given to ``write``."""
        self.error: BookKeeperError | None = None
        self._adder = AddEntries.for_recovery(metadata, limits.adds, numbers, last_add_confirmed=floor, length=length)
        self._before = metadata
        self._copies = ForcedCopies(numbers, limits.adds.add_timeout_ms)
        self._sent: dict[int, str] = {}
        """Request of an unanswered add → bookie."""
        self._owed_until_ms: int | None = None
        """Once everything is confirmed: how long to wait for the other answers."""
        self._is_late = False
        """Whether that has passed."""
        self._request_bytes = limits.request_bytes
        self._unreleased_bytes = 0
        self._commands: list[sm.Command] = []

    @property
    def metadata(self) -> LedgerMetadata:
        """With the fragments of this recovery's own ensemble changes."""
        return self._adder.metadata

    @property
    def confirmed(self) -> int:
        """The last entry that Qa bookies have acked."""
        return self._adder.last_add_confirmed

    @property
    def lacking(self) -> frozenset[str]:
        """Bookies that ``metadata`` names for confirmed entries that they did not take, or have not answered for."""
        return self._adder.lacking.union(self._sent.values())

    @property
    def is_done(self) -> bool:
        """Whether everything given to ``write`` is confirmed, unless there is an ``error``."""
        return self.confirmed == self._adder.last_add_pushed

    @property
    def is_full(self) -> bool:
        """Whether so many bytes still wait for answers of bookies that no more should be read."""
        return self._unreleased_bytes >= self.metadata.ensemble_size * self._request_bytes

    def write(self, found: list[EntryBatch], now_ms: int) -> None:
        """Send the next entries."""
        assert not found or int(found[0].entry_ids[0]) == self._adder.last_add_pushed + 1
        for batch in (piece for entries in found for piece in self._cut(entries)):
            self._unreleased_bytes += batch.nbytes
            self.length += int(payload_sizes(batch.payloads).sum())
            self.handle(sm.Append(batch.payloads, token=batch.nbytes), now_ms)

    @property
    def is_durable(self) -> bool:
        """Whether, once everything is confirmed and nothing is ``lost``, the closing write may name every bookie that joined.

        Bookies that owe answers get a moment to give them, so that the ledger is not marked for them.
        """
        is_waiting = bool(self._sent) and not self._is_late
        return not (self._copies.is_waiting or self._owing or is_waiting)

    @property
    def lost(self) -> str:
        """Which bookie's acks have counted in vain, and why; empty if none's have."""
        reasons = (f"{bookie_id}: {reason}" for bookie_id, reason in self._copies.lost.items() if bookie_id in self._joined)
        return next(reasons, "")

    def make_durable(self, now_ms: int) -> None:
        """Force the bookies that joined. To be called once everything is confirmed, and again until ``is_durable``."""
        assert self.is_done
        assert self.error is None
        if self._owed_until_ms is None:
            self._owed_until_ms = now_ms + OWED_PATIENCE_MS
        self._is_late = now_ms >= self._owed_until_ms
        self._commands += self._copies.force(self._joined - self._owing, now_ms)

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if isinstance(event, sm.ForceAnswered):
            self._copies.answered(event)
        elif isinstance(event, sm.AddAnswered):
            self._note_ack(event)
        self._copies.check_timeout(now_ms)
        self._adder.handle(event, now_ms)
        for command in self._adder.take_commands():
            self._take(command)

    def cancel(self) -> list[sm.Command]:
        """Give up what is under way."""
        return [sm.CancelAdd(request_id) for request_id in self._sent]

    def take_commands(self) -> list[sm.Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        owed_until_ms = None if self._is_late else self._owed_until_ms
        times = (self._adder.deadline_ms(), self._copies.deadline_ms(), owed_until_ms)
        return min((time for time in times if time is not None), default=None)

    @property
    def _joined(self) -> set[str]:
        """The bookies that the closing write names and that the last fragment did not name before."""
        own = self.metadata.fragments[len(self._before.fragments) - 1 :]
        return {bookie_id for fragment in own for bookie_id in fragment.ensemble}.difference(
            self._before.last_fragment.ensemble
        )

    @property
    def _owing(self) -> set[str]:
        """Bookies that joined and have adds to answer. The adder gives up those that are silent for too long."""
        return self._joined.intersection(self._sent.values())

    def _note_ack(self, event: sm.AddAnswered) -> None:
        bookie_id = self._sent.pop(event.request_id, None)
        if bookie_id is not None and event.status is Status.OK:
            self._copies.acked(bookie_id, event.boot)

    def _take(self, command: sm.Command) -> None:
        if isinstance(command, sm.SendAdd):
            assert command.request_id not in self._sent
            self._sent[command.request_id] = command.bookie_id
        elif isinstance(command, sm.CancelAdd):
            self._sent.pop(command.request_id, None)
        if isinstance(command, sm.Reject):
            self.error = self.error or command.error
        elif isinstance(command, sm.Release):
            assert isinstance(command.token, int)
            self._unreleased_bytes -= command.token
            assert self._unreleased_bytes >= 0
        elif not isinstance(command, sm.Confirm):
            self._commands.append(command)

    def _cut(self, entries: EntryBatch) -> Iterator[EntryBatch]:
        """Cut into batches that fit into an add."""
        ends = np.cumsum(payload_sizes(entries.payloads) + ENTRY_OVERHEAD_BYTES)
        start = 0
        while start < len(entries):
            sent = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, sent + self._request_bytes, side="right"))
            stop = min(max(fitting, start + 1), start + MAX_BATCH_ENTRIES)
            yield entries.slice(start, stop - start)
            start = stop
