"""How far an open ledger is confirmed, its LAC: a reader asks for it (``ReadLastAddConfirmed``) or waits for more
(``AwaitLastAddConfirmed``), and an idle writer tells it (``ExplicitLac``).

A question goes to every bookie of the last ensemble, and the highest answer is the result. It needs answers from enough
bookies: every possible ack quorum must have a bookie that answered OK, or explicitly that it holds nothing of the ledger. Then
the result misses no entry that was confirmed *and followed by another* before the question. It is never below the entry before
the last fragment, because that fragment only starts after all earlier entries are confirmed.

A wait is a long poll to every bookie of the last ensemble. It ends as soon as a bookie knows a last add confirmed beyond the
given entry, or the metadata shows that the ledger is closed; at the latest when the time is up, with what is known then. The
result comes from a bookie, from the end in the metadata or from the start of the last fragment; it never goes beyond them.

With bookies alone a reader could wait for ever: only the metadata tells that a ledger is closed and where a fenced one ends,
and after an ensemble change the old bookies hear nothing more. So a wait looks at the metadata once a second, at its end, and
at a bounded rate whenever a bookie has no news, no answer or a fence. It polls a new ensemble, too.

Ref: the BookKeeper protocol, "Writing to ledgers"; docs/rules.md, protocol rules 3 and 6, for quorum and floor of a question,
rule 59 and situation 46 for the wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bk_spark.client.protocol import state_machine as sm
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookieUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.quorum import is_covered
from bk_spark.wire.messages import MAX_WAIT_MS, Status, Verdict

RECHECK_MS = 200
"""The least time between two looks at the metadata, and between two polls of one bookie. A recovery takes about as long."""

ROUTINE_LOOK_MS = 1_000
"""How often the metadata is read without a sign of news: no bookie is told that a writer closed its ledger."""

MAX_PAUSE_MS = 1_000
"""The pause between two polls of a bookie doubles up to this while it answers at once without news. So a bookie that is
down, or that holds nothing of the ledger yet, costs one poll and one look a second."""

LONGEST_PAUSE_MS = 10_000
"""Between two rounds of telling one LAC. So readers see the end of an idle ledger within this time after its bookies are back,
and an idle writer without them costs each of them one small request in that time."""


@dataclass(slots=True)
class _Poll:
    """The long poll of one bookie of the ensemble."""

    request_id: int | None = None
    """None while no answer is awaited."""
    sent_ms: int = 0
    due_ms: int = 0
    """While an answer is awaited: when the bookie counts as silent. Otherwise: when to poll it again."""
    pause_ms: int = RECHECK_MS
    is_fenced: bool = False
    """It accepts no more adds of the writer, so it will have no more news: the end will be in the metadata."""
    reason: str = "no answer yet"


class AwaitLastAddConfirmed(sm.StateMachine):
    """The state machine of one wait for more than ``beyond``; its result is (LedgerMetadata, last add confirmed).

    A bookie counts as silent ``timeout_ms`` after the end of its long poll. Finish comes with an error only if nobody answered
    (BookieUnavailableError) or the ledger is gone (NoSuchLedgerError).
    """

    def __init__(self, metadata: LedgerMetadata, beyond: int, *, wait_ms: int, timeout_ms: int) -> None:
        super().__init__()
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

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, sm.Start):
            self._end_ms, self._routine_look_ms = now_ms + self._wait_ms, now_ms + ROUTINE_LOOK_MS
            self._adopt(self._metadata, now_ms)
        elif isinstance(event, sm.LastAddConfirmedAnswered):
            self._answered(event, now_ms)
        elif isinstance(event, sm.MetadataLook):
            self._looked(event, now_ms)
        if self._end_ms is not None and not self._finished:
            self._go_on(self._end_ms, now_ms)

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
                    sm.SendReadLastAddConfirmed(self._next_request, bookie_id, beyond=self._beyond, wait_ms=wait_ms)
                )

    def _answered(self, event: sm.LastAddConfirmedAnswered, now_ms: int) -> None:
        poll = next((p for p in self._polls.values() if p.request_id == event.request_id), None)
        if poll is None:
            return
        if event.status.verdict is Verdict.UNKNOWN:
            poll.reason = event.problem
            self._without_news(poll, now_ms)
        else:
            self._has_answer_of_bookie = True
            poll.is_fenced = event.is_fenced
            self._without_news(poll, now_ms)
            if event.status is Status.OK:
                self._learn(event.last_add_confirmed)

    def _without_news(self, poll: _Poll, now_ms: int) -> None:
        """A poll has ended. The next one follows after a pause, which grows while the bookie answers sooner than that."""
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
        """Take over metadata: an end that it shows decides, whatever bookies say; otherwise poll its last ensemble."""
        self._metadata = metadata
        if metadata.last_entry_id is not None:
            self._finish((metadata, metadata.last_entry_id))
            return
        self._polls = {b: self._polls.get(b) or _Poll(due_ms=now_ms) for b in metadata.last_fragment.ensemble}
        self._learn(metadata.last_fragment.first_entry_id - 1)

    def _looked(self, event: sm.MetadataLook, now_ms: int) -> None:
        self._is_looking = False
        if isinstance(event, sm.MetadataGone):
            self._finish(error=NoSuchLedgerError(self._metadata.ledger_id))
        elif isinstance(event, sm.MetadataUnknown):
            self._wants_look = True
        else:
            self._has_answer_of_store = True
            self._adopt(event.metadata, now_ms)

    @property
    def _look_due_ms(self) -> int:
        """Sooner while a bookie has no news, or the ledger is fenced: then a recoverer is about to write its end."""
        is_ending = self._metadata.state is LedgerState.IN_RECOVERY or any(poll.is_fenced for poll in self._polls.values())
        return self._next_look_ms if self._wants_look or is_ending else self._routine_look_ms

    def _look(self, now_ms: int) -> None:
        self._is_looking, self._wants_look = True, False
        self._next_look_ms, self._routine_look_ms = now_ms + RECHECK_MS, now_ms + ROUTINE_LOOK_MS
        self._commands.append(sm.ReadMetadata())

    # --- the steps of the wait

    def _go_on(self, end_ms: int, now_ms: int) -> None:
        self._give_up_silent_polls(now_ms)
        if now_ms < end_ms or self._next_request == 0:
            self._poll_bookies(end_ms, now_ms)
        if now_ms >= end_ms:
            self._wind_up(end_ms, now_ms)
        elif not self._is_looking and now_ms >= self._look_due_ms:
            self._look(now_ms)

    def _wind_up(self, end_ms: int, now_ms: int) -> None:
        """Time is up: take one last look, and wait for one bookie's answer while one can still come."""
        if not self._has_last_look:
            self._has_last_look = True
            if not self._is_looking:
                self._look(now_ms)
        is_patience_over = now_ms >= end_ms + self._timeout_ms
        is_answer_awaited = any(poll.request_id is not None for poll in self._polls.values())
        has_heard = not self._is_looking and (self._has_answer_of_bookie or not is_answer_awaited)
        if not is_patience_over and not has_heard:
            return
        if self._has_answer_of_bookie or self._has_answer_of_store:
            self._finish((self._metadata, self._highest))
        else:
            replicas = tuple(f"{bookie_id}: {poll.reason}" for bookie_id, poll in self._polls.items())
            self._finish(error=BookieUnavailableError(self._metadata.ledger_id, self._beyond + 1, replicas))

    def _learn(self, last_add_confirmed: int) -> None:
        self._highest = max(self._highest, last_add_confirmed)
        if self._highest > self._beyond:
            self._finish((self._metadata, self._highest))


class ReadLastAddConfirmed(sm.StateMachine):
    """The state machine of one question; its result is the last add confirmed.

    With ``quorum=False`` any answer is enough: it is true, but perhaps older than what a quorum knows. The first bookie that
    holds the ledger decides. The answers of bookies that hold nothing of it count only if no bookie holds it.

    Finish comes with BookieUnavailableError if too few bookies answered within ``timeout_ms``.
    """

    def __init__(self, metadata: LedgerMetadata, *, timeout_ms: int, quorum: bool = True, floor: int | None = None) -> None:
        """Entries up to ``floor`` are known to be confirmed; None: all entries before the last fragment."""
        super().__init__()
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._quorum = quorum
        self._started_ms: int | None = None
        self._highest = metadata.last_fragment.first_entry_id - 1 if floor is None else floor
        self._known: set[int] = set()
        self._unknown: dict[int, str] = {}

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if isinstance(event, sm.Start):
            self._started_ms = now_ms
            for slot, bookie_id in enumerate(self._metadata.last_fragment.ensemble):
                self._commands.append(sm.SendReadLastAddConfirmed(slot, bookie_id))
        elif isinstance(event, sm.LastAddConfirmedAnswered):
            self._answered(event)
        if self._started_ms is not None and now_ms >= self._started_ms + self._timeout_ms:
            self._give_up(f"no answer for {self._timeout_ms / 1000:g} s")

    def deadline_ms(self) -> int | None:
        return None if self._finished or self._started_ms is None else self._started_ms + self._timeout_ms

    def _answered(self, event: sm.LastAddConfirmedAnswered) -> None:
        if event.status.verdict is Verdict.UNKNOWN:
            self._unknown[event.request_id] = event.problem
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
            self._finish(self._highest)
        elif len(self._known) + len(self._unknown) == metadata.ensemble_size:
            self._give_up("")

    def _give_up(self, silent: str) -> None:
        if self._known and not self._quorum:
            self._finish(self._highest)
            return
        ensemble = self._metadata.last_fragment.ensemble
        reasons = {slot: self._unknown.get(slot, silent) for slot in range(len(ensemble)) if slot not in self._known}
        replicas = tuple(f"{ensemble[slot]}: {reason}" for slot, reason in reasons.items())
        self._finish(error=BookieUnavailableError(self._metadata.ledger_id, self._highest + 1, replicas))


class ExplicitLac:
    """What an idle writer tells its bookies, until every reader who asks a quorum learns it.

    An entry carries the LAC that was known when it was sent, so readers see a writer's last entry only with the next one. So
    after a pause without adds the writer tells its bookies the LAC by itself. It looks at the answers: bookies may be restarted
    within the pause, or refuse. Those that have not taken the LAC are told again after a pause that doubles up to
    LONGEST_PAUSE_MS, until *enough* have it: Qa slots of some write set. Every reader's quorum leaves fewer than Qa slots of
    each write set unasked, so it has one of them.

    An add that carries the LAC is as good: Qa slots of its write set confirm it, or the writer fails. With deferred sync it is
    not, because a crash may take such adds from their bookies. A new fragment starts behind the LAC, which is enough for
    readers, so the LAC need not be told to bookies that replace others.

    Only bookies that were sent entries are told. One of Apache's that has a LAC and no entry of a ledger answers questions with
    an I/O error, which counts as unknown: with another one gone no client of Apache's opens the ledger, nor does its
    AutoRecovery. Entries after the start of the fragment were sent to a whole write set, so enough slots can be told.

    Worked example, 3/3/2: entries 0-4 are confirmed, entry 4 carries LAC 3. All bookies are restarted. b0 and b1 break off when
    they are told 4, b2 takes it; one is not enough. After a pause b0 and b1 are told again, b0 takes it: b0 and b2 are enough.

    Ref: docs/rules.md, protocol rules 3 and 62; situation 23.
    """

    def __init__(self, metadata: LedgerMetadata, pause_ms: int, numbers: Iterator[int]) -> None:
        """``numbers`` gives the ids of requests."""
        self._slots = frozenset(range(metadata.ensemble_size))
        self._sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._first_pause_ms = self._pause_ms = pause_ms
        self._numbers = numbers
        self._known = NO_ENTRY
        """The highest LAC that enough slots have, or that an add under way brings them."""
        self._active_ms = 0
        """When bookies were last told a LAC."""
        self._holders: set[int] = set()
        """The slots whose bookies were sent entries."""
        self._telling = NO_ENTRY
        self._told: set[int] = set()
        """The slots that have taken ``_telling``."""
        self._asked: dict[int, int] = {}
        """Unanswered requests with ``_telling``, and their slots."""

    def carried(self, last_add_confirmed: int, now_ms: int) -> None:
        """Adds that carry this LAC are sent, and enough slots will have stored them or the writer fails."""
        self._known, self._active_ms = max(self._known, last_add_confirmed), now_ms

    def sent_to(self, slot: int) -> None:
        """An entry is sent to this slot's bookie."""
        self._holders.add(slot)

    def repeat(self, now_ms: int) -> None:
        """Tell everything once more, after a pause: perhaps bookies have lost what they took."""
        self._known = self._telling = NO_ENTRY
        self._active_ms = now_ms

    def replaced(self, slots: Collection[int]) -> None:
        """Other bookies take these slots, and they were sent and told nothing."""
        self._holders.difference_update(slots)
        self._told.difference_update(slots)
        self._asked = {request_id: slot for request_id, slot in self._asked.items() if slot not in slots}

    def due_ms(self, last_add_confirmed: int) -> int | None:
        """When to tell this LAC; None if enough slots have it."""
        if self._known >= last_add_confirmed:
            return None
        return self._active_ms + (self._pause_ms if self._telling == last_add_confirmed else self._first_pause_ms)

    def tell(self, last_add_confirmed: int, bookies: tuple[str, ...], failed: Collection[int], now_ms: int) -> list[sm.Command]:
        """Tell the LAC to the slots with entries that have not failed, have not taken it, and owe no answer."""
        assert last_add_confirmed >= self._telling, "what was told as confirmed stays confirmed"
        if self._telling != last_add_confirmed:
            self._telling, self._pause_ms = last_add_confirmed, self._first_pause_ms
            self._told.clear()
            self._asked.clear()
        self._active_ms = now_ms
        self._pause_ms = min(2 * self._pause_ms, max(LONGEST_PAUSE_MS, self._first_pause_ms))
        assert self._told <= self._holders, "nothing is told to who was sent no entry"
        asked = self._told.union(failed, self._asked.values())
        requests = [(next(self._numbers), slot) for slot in sorted(self._holders - asked)]
        self._asked.update(requests)
        return [sm.SendStoreLastAddConfirmed(number, bookies[slot], last_add_confirmed) for number, slot in requests]

    def answered(self, event: sm.StoreLastAddConfirmedAnswered) -> None:
        slot = self._asked.pop(event.request_id, None)
        if slot is None or event.status is not Status.OK:
            return
        self._told.add(slot)
        if not is_covered(self._slots - self._told, *self._sizes):
            self._known = max(self._known, self._telling)
