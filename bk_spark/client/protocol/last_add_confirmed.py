"""Waiting until a ledger is confirmed beyond an entry: a long poll to every bookie of its last ensemble.

It ends as soon as a bookie knows of a last add confirmed beyond that entry, or when the metadata shows that the ledger is
closed, and at the latest when the time is up, with what is known then. It shows what a bookie, the metadata's end or the
last fragment's start says, never more.

Bookies alone would let a reader wait for ever: that a ledger is closed, and where a fenced one ends, stands only in the
metadata, and after an ensemble change the old bookies hear nothing any more. So the metadata is looked at once a second, at
the end of the wait, and at a bounded rate when a bookie has no news, no answer or a fence; a new ensemble is polled, too.

Ref: docs/rules.md, protocol rule 59; situation 46.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.client.protocol.state_machine import (
    Command,
    Event,
    Finish,
    LastAddConfirmedAnswered,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    ReadMetadata,
    SendReadLastAddConfirmed,
    Start,
)
from bk_spark.errors import BookieUnavailableError, BookKeeperError, NoSuchLedgerError, UnauthorizedAccessError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.quorum import is_covered
from bk_spark.wire.messages import MAX_WAIT_MS, Status, Verdict

RECHECK_MS = 200
"""The least time between two looks at the metadata, and between two polls of one bookie. A recovery takes about as long."""

ROUTINE_LOOK_MS = 1_000
"""How often the metadata is looked at for no reason: no bookie is told that a writer closed its ledger."""

MAX_PAUSE_MS = 1_000
"""The time between two polls of a bookie doubles up to this while it comes back at once without news: a bookie that is
down, or that holds nothing of the ledger yet, costs one poll and one look a second."""


@dataclass(slots=True)
class _Poll:
    """What is under way with one bookie of the ensemble."""

    request_id: int | None = None
    """None while no answer is awaited."""
    sent_ms: int = 0
    due_ms: int = 0
    """When an answer that is awaited counts as none; otherwise when to poll again."""
    pause_ms: int = RECHECK_MS
    is_fenced: bool = False
    """It takes no more adds of the writer and so has no more news: the rest stands in the metadata."""
    reason: str = "no answer yet"


class AwaitLastAddConfirmed:
    """The state machine of one wait for more than ``beyond``; its result is (LedgerMetadata, last add confirmed).

    ``timeout_ms`` is the patience with a bookie after the time that it was asked to wait. Finish comes with an error only
    if nobody answered (BookieUnavailableError), the ledger is gone (NoSuchLedgerError) or the password is wrong.
    """

    def __init__(self, metadata: LedgerMetadata, beyond: int, *, wait_ms: int, timeout_ms: int) -> None:
        self._metadata = metadata
        self._beyond = beyond
        self._wait_ms = wait_ms
        self._timeout_ms = timeout_ms
        self._end_ms: int | None = None
        self._highest = -1
        self._polls: dict[str, _Poll] = {}
        self._next_request = 0
        self._has_answer_of_bookie = False
        self._has_answer_of_store = False
        self._wants_look = False
        self._is_looking = False
        self._next_look_ms = 0
        self._routine_look_ms = 0
        self._has_last_look = False
        self._finished = False
        self._commands: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, Start):
            self._end_ms, self._routine_look_ms = now_ms + self._wait_ms, now_ms + ROUTINE_LOOK_MS
            self._adopt(self._metadata, now_ms)
        elif isinstance(event, LastAddConfirmedAnswered):
            self._answered(event, now_ms)
        elif isinstance(event, MetadataRead | MetadataGone | MetadataUnknown):
            self._looked(event, now_ms)
        if self._end_ms is not None and not self._finished:
            self._go_on(self._end_ms, now_ms)

    def take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        if self._finished or self._end_ms is None:
            return None
        if self._has_last_look:
            return self._end_ms + self._timeout_ms
        times = [poll.due_ms for poll in self._polls.values() if poll.request_id is not None or not poll.is_fenced]
        if not self._is_looking:
            times.append(self._look_due_ms)
        return min([*times, self._end_ms])

    # --- bookies

    def _poll_bookies(self, end_ms: int, now_ms: int) -> None:
        for bookie_id, poll in self._polls.items():
            if poll.request_id is None and not poll.is_fenced and now_ms >= poll.due_ms:
                wait_ms = min(end_ms - now_ms, MAX_WAIT_MS)
                self._next_request += 1
                poll.request_id, poll.sent_ms, poll.due_ms = self._next_request, now_ms, now_ms + wait_ms + self._timeout_ms
                self._commands.append(
                    SendReadLastAddConfirmed(self._next_request, bookie_id, beyond=self._beyond, wait_ms=wait_ms)
                )

    def _answered(self, event: LastAddConfirmedAnswered, now_ms: int) -> None:
        poll = next((p for p in self._polls.values() if p.request_id == event.request_id), None)
        if poll is None:
            return
        if event.status is Status.UNAUTHORIZED:
            self._finish(error=UnauthorizedAccessError(self._metadata.ledger_id))
        elif event.status.verdict is Verdict.UNKNOWN:
            poll.reason = f"{event.status.name} {event.detail}".rstrip()
            self._without_news(poll, now_ms)
        else:
            self._has_answer_of_bookie = True
            poll.is_fenced = event.is_fenced
            self._without_news(poll, now_ms)
            if event.status is Status.OK:
                self._learn(event.last_add_confirmed)

    def _without_news(self, poll: _Poll, now_ms: int) -> None:
        """A poll is over: the next one may be sent after a pause that grows while bookies answer faster than that."""
        poll.request_id, poll.due_ms = None, max(now_ms, poll.sent_ms + poll.pause_ms)
        is_early = now_ms < poll.sent_ms + poll.pause_ms
        poll.pause_ms = min(2 * poll.pause_ms, MAX_PAUSE_MS) if is_early else RECHECK_MS
        self._wants_look = True

    def _give_up_silent_polls(self, now_ms: int) -> None:
        for poll in self._polls.values():
            if poll.request_id is not None and now_ms >= poll.due_ms:
                poll.reason = f"no answer for {(now_ms - poll.sent_ms) / 1000:g} s"
                self._without_news(poll, now_ms)

    # --- metadata

    def _adopt(self, metadata: LedgerMetadata, now_ms: int) -> None:
        """What the metadata says goes before what bookies say; its last ensemble is the one to poll."""
        self._metadata = metadata
        if metadata.last_entry_id is not None:
            self._finish((metadata, metadata.last_entry_id))
            return
        self._polls = {b: self._polls.get(b) or _Poll(due_ms=now_ms) for b in metadata.last_fragment.ensemble}
        self._learn(metadata.last_fragment.first_entry_id - 1)

    def _looked(self, event: MetadataRead | MetadataGone | MetadataUnknown, now_ms: int) -> None:
        self._is_looking = False
        if isinstance(event, MetadataGone):
            self._finish(error=NoSuchLedgerError(self._metadata.ledger_id))
        elif isinstance(event, MetadataUnknown):
            self._wants_look = True
        else:
            self._has_answer_of_store = True
            self._adopt(event.metadata, now_ms)

    @property
    def _look_due_ms(self) -> int:
        """A fenced ledger's end is looked for until it is there: a recoverer is about to write it."""
        is_ending = self._metadata.state is LedgerState.IN_RECOVERY or any(poll.is_fenced for poll in self._polls.values())
        return self._next_look_ms if self._wants_look or is_ending else self._routine_look_ms

    def _look(self, now_ms: int) -> None:
        self._is_looking, self._wants_look = True, False
        self._next_look_ms, self._routine_look_ms = now_ms + RECHECK_MS, now_ms + ROUTINE_LOOK_MS
        self._commands.append(ReadMetadata())

    # --- the course of the wait

    def _go_on(self, end_ms: int, now_ms: int) -> None:
        self._give_up_silent_polls(now_ms)
        if now_ms < end_ms or self._next_request == 0:
            self._poll_bookies(end_ms, now_ms)
        if now_ms >= end_ms:
            self._wind_up(end_ms, now_ms)
        elif not self._is_looking and now_ms >= self._look_due_ms:
            self._look(now_ms)

    def _wind_up(self, end_ms: int, now_ms: int) -> None:
        """Time is up: one last look, and at least one bookie's answer if one still comes, for those were asked to wait."""
        if not self._has_last_look:
            self._has_last_look = True
            if not self._is_looking:
                self._look(now_ms)
        is_patience_over = now_ms >= end_ms + self._timeout_ms
        is_answer_awaited = any(poll.request_id is not None for poll in self._polls.values())
        has_heard = not self._is_looking and (self._has_answer_of_bookie or not is_answer_awaited)
        if is_patience_over or has_heard:
            self._finish_with_what_is_known()

    def _learn(self, last_add_confirmed: int) -> None:
        self._highest = max(self._highest, last_add_confirmed)
        if self._highest > self._beyond:
            self._finish((self._metadata, self._highest))

    def _finish_with_what_is_known(self) -> None:
        if self._has_answer_of_bookie or self._has_answer_of_store:
            self._finish((self._metadata, self._highest))
            return
        replicas = tuple(f"{bookie_id}: {poll.reason}" for bookie_id, poll in self._polls.items())
        self._finish(error=BookieUnavailableError(self._metadata.ledger_id, self._beyond + 1, replicas))

    def _finish(self, result: tuple[LedgerMetadata, int] | None = None, *, error: BookKeeperError | None = None) -> None:
        if not self._finished:
            self._finished = True
            self._commands.append(Finish(result, error))


# --- How far an open ledger is confirmed: ask every bookie of its last ensemble, take the highest answer
#
# The answer counts once every possible ack quorum has a bookie among those that know (OK, or explicitly that they hold
# nothing of the ledger): then no entry that was confirmed *and followed by another* before the question can be missed.
# It is never below the entry before the last fragment, which only starts after all earlier entries are confirmed.
#
# With ``quorum=False`` any answer is enough: true, but perhaps older than what a quorum knows. The first bookie that holds
# the ledger decides; those that hold nothing of it are waited out, and count if nobody holds it.
#
# Ref: the BookKeeper protocol, "Writing to ledgers"; docs/rules.md, protocol rules 3 and 6, for its quorum and floor.


class ReadLastAddConfirmed:
    """The state machine of one question; its result is the last add confirmed.

    Finish comes with BookieUnavailableError if too few bookies answered within ``timeout_ms``, UnauthorizedAccessError.
    """

    def __init__(self, metadata: LedgerMetadata, *, timeout_ms: int, quorum: bool = True, floor: int | None = None) -> None:
        """``floor`` is known to be confirmed; None: all before the last fragment, as its start says."""
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._quorum = quorum
        self._started_ms: int | None = None
        self._highest = metadata.last_fragment.first_entry_id - 1 if floor is None else floor
        self._known: set[int] = set()
        self._unknown: dict[int, str] = {}
        self._finished = False
        self._commands: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if isinstance(event, Start):
            self._started_ms = now_ms
            for slot, bookie_id in enumerate(self._metadata.last_fragment.ensemble):
                self._commands.append(SendReadLastAddConfirmed(slot, bookie_id))
        elif isinstance(event, LastAddConfirmedAnswered):
            self._answered(event)
        if self._started_ms is not None and now_ms >= self._started_ms + self._timeout_ms:
            self._give_up(f"no answer for {self._timeout_ms / 1000:g} s")

    def take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def deadline_ms(self) -> int | None:
        return None if self._finished or self._started_ms is None else self._started_ms + self._timeout_ms

    def _answered(self, event: LastAddConfirmedAnswered) -> None:
        if event.status is Status.UNAUTHORIZED:
            self._finish(Finish(error=UnauthorizedAccessError(self._metadata.ledger_id)))
        elif event.status.verdict is Verdict.UNKNOWN:
            self._unknown[event.request_id] = f"{event.status.name} {event.detail}".rstrip()
        else:
            self._known.add(event.request_id)
            if event.status is Status.OK:
                self._highest = max(self._highest, event.last_add_confirmed)
        self._decide(event.status)

    def _decide(self, status: Status) -> None:
        metadata = self._metadata
        sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        is_enough = is_covered(frozenset(self._known), *sizes) if self._quorum else status is Status.OK
        if is_enough:
            self._finish(Finish(result=self._highest))
        elif len(self._known) + len(self._unknown) == metadata.ensemble_size:
            self._give_up("")

    def _give_up(self, silent: str) -> None:
        if self._known and not self._quorum:
            self._finish(Finish(result=self._highest))
            return
        ensemble = self._metadata.last_fragment.ensemble
        reasons = {slot: self._unknown.get(slot, silent) for slot in range(len(ensemble)) if slot not in self._known}
        replicas = tuple(f"{ensemble[slot]}: {reason}" for slot, reason in reasons.items())
        self._finish(Finish(error=BookieUnavailableError(self._metadata.ledger_id, self._highest + 1, replicas)))

    def _finish(self, command: Finish) -> None:
        if not self._finished:
            self._finished = True
            self._commands.append(command)
