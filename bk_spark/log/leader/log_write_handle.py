"""LogWriteHandle: the handle that leads a log, for applications. Several threads may use it.

    calls ─► arrivals ─► RollLog's queue ─► ledger ─► confirmed

A call arrives by one step (client/ledger/arrivals.py), and all the rest happens on the client's event loop, which interrupts
never reach: RollLog decides there which ledger an append goes to. What waits for the metadata store, a roll and the end of a
close, runs in a thread of its own, and tells the event loop of each of its steps. Callbacks of futures never wait.

Every wait ends. An append is confirmed, or fails its ledger's writer after ``ClientConfig.add_quorum_timeout_s``; it waits for
room for ``append_wait_s`` at most. A step of a roll takes a few calls to the metadata store.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bk_spark.calls.call_future import CallFuture
from bk_spark.calls.exit_notice import Unconfirmed, tell_at_exit
from bk_spark.calls.forks import refusal
from bk_spark.calls.gate import Gate
from bk_spark.calls.off_main_thread import in_thread
from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.arrivals import Arrival, ArrivingCalls, Key
from bk_spark.client.ledger.payloads import Payload, Payloads, checked_payload, checked_payloads
from bk_spark.client.ledger.write_handle import InOrderWriter, WriteHandle, standing_after
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.ledger.write_queue import SMALL_BYTES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import (
    AppendTimeoutError,
    BookKeeperError,
    ConfigError,
    InternalError,
    LedgerClosedError,
    LedgerFencedError,
    State,
)
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader.leadership import CreatedLedger, Leadership
from bk_spark.log.leader.log_append import LogAppend
from bk_spark.log.leader.roll_log import RollLimits, RollLog, RollState
from bk_spark.log.leader.tier_rolls import TierRolls, TierWait

logger = logging.getLogger(__name__)


def submit(leader: LogWriteHandle, append: LogAppend) -> Future[Any]:
    """Append what was checked before, for writers of other things than bytes. Waits while too much is unconfirmed."""
    return leader._append(append)


@dataclass(frozen=True, eq=False)
class _Served:
    """What a client calls of a leader."""

    look: Callable[[], None]
    client_closed: Callable[[], None]
    forked: Callable[[], None]


class LogWriteHandle(InOrderWriter[LogPosition]):
    """The leader of a log: the one writer of its last ledger, until somebody displaces it.

    Appends are confirmed in the order in which they were made, across ledgers too; the futures hold their places. They wait
    while ``ClientConfig.add_window_bytes`` are unconfirmed, and raise AppendTimeoutError after ``append_wait_s``.

    Another ``open_writer``, an append of Spark, ``Log.append_ledgers`` or ``Log.recover`` displaces this leader: its appends,
    ``roll`` and ``close`` then raise LedgerFencedError. Confirmed entries stay in the log, in their place and order, before
    all that others append. The outcome of unconfirmed appends is unknown; read the log to learn it. After this or any other
    failure every call fails with the first error, and ``Log.open_writer()`` leads the log anew.
    """

    def __init__(self, leadership: Leadership, ledger: WriteHandle, limits: RollLimits) -> None:
        self._leadership = leadership
        self._name = leadership.name
        self._limits = limits
        self._loop = EventLoop.get()
        self._calls = ArrivingCalls(limits.window_bytes, lambda: self._loop.call_soon_threadsafe(self._look), SMALL_BYTES)
        """Appends, each with its LogAppend; a roll has none."""
        self._given_up: deque[tuple[Arrival, BookKeeperError | None]] = deque()
        """Calls that whoever made them does not wait for any more, or no longer than this."""
        self._closings: dict[str, CallFuture] = {}
        """The result of the close, once it was requested."""
        self._news: deque[Callable[[], None]] = deque()
        """What happened, in order: for the event loop, which alone changes all that follows."""
        self._rolls: RollLog[WriteHandle, Arrival] = RollLog(ledger, limits)
        self._asked_rolls: list[Key] = []
        """Those that wait for their turn."""
        self._rolling: list[Key] = []
        """Those that a roll under way answers."""
        self._drained: CallFuture | None = None
        """A roll waits for it."""
        self._is_ending = False
        self._tier = TierRolls(self._loop, self._ask_tier)
        self._served = _Served(self._look, self._client_closed, self._forked)
        ledger._write_for(self._name, self._served)
        tell_at_exit(self)

    @property
    def ledger_id(self) -> int:
        """The ledger that appends go to; a roll changes it."""
        return self._rolls.ledger.ledger_id

    @property
    def epoch(self) -> int:
        """The number of this leadership: it grows with each change of the leader."""
        return self._leadership.epoch

    def append_async(self, payload: Payload) -> Future[LogPosition]:
        checked = checked_payload(payload)
        return self._append(LogAppend(checked, len(checked) + ENTRY_OVERHEAD_BYTES))

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[LogPosition, LogPosition]]:
        checked = checked_payloads(payloads)
        return self._append(LogAppend(checked, checked.nbytes))

    def roll(self) -> None:
        """Go on in a new ledger. On return all that was appended before the call is confirmed, in ledgers that are CLOSED.

        Does nothing if the ledger is empty. Others may append meanwhile. Raises NotEnoughBookiesError or
        MetadataUnavailableError if no ledger could be created: the leader goes on in the old one. Other errors end it. A
        roll that is interrupted goes on.
        """
        check_may_wait(EventLoop.get())
        rolled = CallFuture()
        self._calls.put(Arrival(0, rolled, None))
        self._calls.wake()
        rolled.result()

    def close(self) -> None:
        """Wait until all that was appended is confirmed, close the ledgers, and record their ends in one commit.

        A second close gives the result of the first. One that is interrupted goes on. Raises what failed this leader;
        LedgerFencedError if it was displaced. Then its ledgers are left to whoever recovers them: ``Log.recover``, the next
        leader, or the next append.
        """
        check_may_wait(EventLoop.get())
        closed = self._closings.setdefault("close", CallFuture())
        self._calls.wake()
        closed.result()

    def _unconfirmed(self) -> Unconfirmed:
        """What no ledger has yet; its ledgers tell the rest."""
        calls = [] if self._is_client_closed else [*self._calls, *self._rolls.queued]
        entries = sum(call.what.count for call in calls if call.what is not None)
        return Unconfirmed(entries, "entry", f"log '{self._name}'")

    @property
    def _is_client_closed(self) -> bool:
        return self._rolls.ledger._is_client_closed

    @property
    def _title(self) -> str:
        return f"the writer of log '{self._name}'"

    @property
    def _standing(self) -> str:
        return f"ledger {self.ledger_id}, {standing_after(self._rolls.refusal)}"

    def _append(self, append: LogAppend) -> Future[Any]:
        self._rolls.ledger._check_takes(append.largest)
        append = append.owned()
        if self._calls.has_room(append.nbytes):
            self._calls.put(Arrival(append.nbytes, append.future, append))
        else:
            self._put_and_wait(append)
        return append.future

    def _put_and_wait(self, append: LogAppend) -> None:
        """Make a call, and wait until it has left the queue. Raises what refuses it there. An interrupt withdraws it."""
        check_may_wait(self._loop)
        gate, wait_s = Gate(), self._limits.append_wait_s
        arrival = Arrival(append.nbytes, append.future, append, None, gate.open)
        try:
            self._calls.put(arrival)
            self._calls.wake()
            if not gate.wait(wait_s):
                self._give_up(arrival, AppendTimeoutError(self.ledger_id, wait_s, self._limits.window_bytes))
                gate.wait()
        except BaseException:
            self._give_up(arrival, None)
            raise
        refused = append.future.exception() if append.future.done() else None
        if isinstance(refused, AppendTimeoutError):
            raise refused

    def _give_up(self, arrival: Arrival, error: BookKeeperError | None) -> None:
        self._given_up.append((arrival, error))
        self._calls.wake()

    # --- for any thread

    def _tell(self, news: Callable[[], None]) -> None:
        self._news.append(news)
        self._calls.wake()

    def _answered(self, append: LogAppend, ledger: WriteHandle, sent: Future[Any]) -> None:
        """A ledger's futures are answered on the event loop."""
        self._calls.settled(append.nbytes)
        problem = sent.exception()
        if problem is None:
            append.confirm(ledger.ledger_id, sent.result())  # first: when roll and close return, futures are done
            self._tell(lambda: self._rolls.confirmed(append.nbytes))
        else:
            reason = self._reason(problem, ledger)
            self._tell(lambda: self._fail(reason))
            append.future.set_exception(reason)

    # --- on the event loop

    def _look(self) -> None:
        """See what happened and what arrived, and do what may be done. A bug ends the leader: somebody waits for each call."""
        try:
            self._do_what_is_due()
        except Exception as problem:
            logger.exception("the writer of log '%s' failed; please report this bug", self._name)
            self._fail(self._reason(problem, self._rolls.ledger))
            self._end_if_closed()
            if self._news or any(self._calls):  # each look ends one of these at least
                self._loop.call_soon(self._look)

    def _do_what_is_due(self) -> None:
        self._calls.begin_to_look()
        self._calls.is_attended = False
        while self._news:
            self._news.popleft()()
        while (arrival := self._calls.take()) is not None:
            if self._rolls.refusal is None:
                self._rolls.append(arrival, arrival.nbytes)
            else:
                self._refuse(arrival, self._rolls.refusal)
        while self._given_up:
            self._take_back(*self._given_up.popleft())
        if self._closings and self._rolls.refusal is None:
            self._rolls.refuse(LedgerClosedError(self.ledger_id, self._name))
        self._go_on()
        self._calls.is_attended = not self._rolls.is_drained and not self._rolls.has_failed  # an answer comes, which looks

    def _take_back(self, arrival: Arrival, error: BookKeeperError | None) -> None:
        """Nothing is left to do for one that is not in the queue any more."""
        if self._rolls.withdraw(arrival, arrival.nbytes):
            self._refuse(arrival, error or InternalError(self.ledger_id, "the call was interrupted"))

    def _refuse(self, arrival: Arrival, error: BookKeeperError) -> None:
        self._calls.settled(arrival.nbytes)
        arrival.future.set_exception(error)
        _let_go(arrival)

    def _go_on(self) -> None:
        rolls = self._rolls
        self._send_queued()
        if rolls.is_queueing and rolls.is_drained and self._drained is not None:
            rolls.drained()
            self._drained.set_result(None)
            self._send_queued()
        if rolls.state is RollState.STEADY:
            self._begin_what_is_due()
        self._end_if_closed()

    def _send_queued(self) -> None:
        while (arrival := self._rolls.next()) is not None:
            if arrival.what is None:
                self._rolls.confirmed(0)
                self._asked_rolls.append(arrival.future)
            else:
                self._send(arrival.what, self._rolls.ledger)
            _let_go(arrival)

    def _send(self, append: LogAppend, ledger: WriteHandle) -> None:
        if self._rolls.is_first:
            self._tier.began()
        try:
            sent = append.send(ledger)
        except Exception as problem:
            sent = new_future()
            sent.set_exception(problem)
        sent.add_done_callback(lambda done: self._answered(append, ledger, done))

    def _begin_what_is_due(self) -> None:
        asked, self._asked_rolls = self._asked_rolls, []
        if self._rolls.is_empty or self._rolls.has_failed:
            self._answer_rolls(asked, self._rolls.refusal if self._rolls.has_failed else None)
        elif asked or self._rolls.is_roll_due:
            self._rolling += asked
            self._rolls.begin_roll()
            try:
                in_thread(lambda: self._roll_to_end(asked))
            except RuntimeError as problem:  # the process has as many threads as it may have
                self._rolls.call_off()
                self._roll_ended(asked, problem)

    def _ask_tier(self, ledger: int) -> None:
        """Whether the tier of the log waits for the ledger, by its number."""
        if self._rolls.refusal is None:
            try:
                in_thread(lambda: self._learn_tier(ledger))
            except RuntimeError:  # the process has as many threads as it may have
                self._tier.failed()

    def _tier_told(self, ledger: int, wait: TierWait | None) -> None:
        if self._rolls.state in (RollState.STEADY, RollState.CLOSING):  # else the ledger is on its way out
            self._rolls.is_asked = self._tier.told(ledger, wait, self._rolls.ledger_bytes) or self._rolls.is_asked

    def _roll_ended(self, asked: list[Key], problem: BaseException | None) -> None:
        self._rolling = [one for one in self._rolling if one not in asked]
        if problem is not None:
            self._tier.failed()
            if not asked:
                self._warn(problem)
        self._answer_rolls(asked, problem)

    def _answer_rolls(self, rolls: list[Key], problem: BaseException | None) -> None:
        for future in rolls:
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

    def _warn(self, problem: BaseException) -> None:
        then = "writes no more" if self._rolls.has_failed else "goes on in it, and tries again later"
        what = "the writer of log '%s' could not roll ledger %d and %s: %s"
        logger.warning(what, self._name, self.ledger_id, then, problem)

    def _end_if_closed(self) -> None:
        """Begin what ends the leader once it was closed, and all that came before is done."""
        rolls, closed = self._rolls, self._closings.get("close")
        is_done = rolls.state is RollState.STEADY and rolls.is_drained and not rolls.queued
        if closed is None or self._is_ending or not (rolls.has_failed or is_done):
            return
        self._is_ending = True
        if rolls.has_failed:
            closed.set_exception(rolls.refusal)
            return
        try:
            in_thread(lambda: self._end(closed))
        except RuntimeError as problem:
            closed.set_exception(problem)

    def _fail(self, reason: BookKeeperError) -> None:
        for arrival in self._rolls.fail(reason):
            self._refuse(arrival, reason)
        asked, self._asked_rolls = self._asked_rolls, []
        self._answer_rolls(asked, self._rolls.refusal)
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(self._rolls.refusal)

    def _client_closed(self) -> None:
        """What waits would wait for ever."""
        if not self._is_ending and not self._rolls.has_failed:
            remedy = "what was not confirmed may be in the log, or not: open it with a new BookKeeper"
            self._fail(ConfigError("this client", State("closed"), remedy))
            self._go_on()

    def _forked(self) -> None:
        """In a forked process, which has no event loop: nothing here is ever answered, unless it is now."""
        waiting = [arrival.future for arrival in [*self._calls, *self._rolls.queued]]
        for future in [*waiting, *self._asked_rolls, *self._rolling, *self._closings.values()]:
            if not future.done():
                future.set_exception(refusal())

    # --- the threads of a roll, of a look at the tier, and of the end

    def _learn_tier(self, ledger: int) -> None:
        try:
            wait = self._leadership.tier_wait()
        except BookKeeperError as problem:
            logger.warning("the writer of log '%s' looks for the log's tier again later: %s", self._name, problem)
            self._tell(self._tier.failed)
        else:
            self._tell(lambda: self._tier_told(ledger, wait))

    def _roll_to_end(self, asked: list[Key]) -> None:
        """``asked`` are those that wait for it."""
        ended: BaseException | None = None
        try:
            self._roll()
        except BaseException as problem:
            ended = problem
        self._tell(lambda: self._roll_ended(asked, ended))

    def _roll(self) -> None:
        """From OPENING to STEADY."""
        created = self._create()
        with self._failing():
            old = self._rolls.ledger
            self._leadership.list_next(created)
            self._move_to(created.ledger)
            old.close()
            self._leadership.record(self._leadership.end_of(old))
            self._tell(self._rolls.closed)

    def _create(self) -> CreatedLedger:
        try:
            return self._leadership.create()
        except BaseException:
            self._tell(self._rolls.call_off)
            raise

    def _move_to(self, ledger: WriteHandle) -> None:
        """Wait until appends to the old ledger are confirmed, and what was queued meanwhile goes to the new one."""
        ledger._write_for(self._name, self._served)
        drained = CallFuture()
        self._tell(lambda: self._opened(ledger, drained))
        drained.result()

    def _opened(self, ledger: WriteHandle, drained: CallFuture) -> None:
        self._rolls.opened(ledger)
        self._drained = drained
        if self._rolls.has_failed:
            drained.set_exception(self._rolls.refusal)

    def _end(self, closed: CallFuture) -> None:
        try:
            self._finish()
        except BaseException as problem:
            closed.set_exception(problem)
        else:
            closed.set_result(None)

    def _finish(self) -> None:
        ledger = self._rolls.ledger
        with self._failing():
            ledger.close()
            self._leadership.record(self._leadership.end_of(ledger))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Any error here ends this leader. The next leader finds out what its ledgers hold."""
        try:
            yield
        except BaseException as problem:
            reason = self._reason(problem, self._rolls.ledger)
            self._tell(lambda: self._fail(reason))
            if isinstance(problem, BookKeeperError) and reason is not problem:
                raise reason from problem
            raise

    def _reason(self, problem: BaseException, ledger: WriteHandle) -> BookKeeperError:
        """The error that appends fail with. A ledger that somebody else closed was recovered: its leader is displaced."""
        if isinstance(problem, (LedgerClosedError, LedgerFencedError)):
            return LedgerFencedError(ledger.ledger_id, self._name)
        if isinstance(problem, BookKeeperError):
            return problem
        return InternalError(ledger.ledger_id, repr(problem))


def _let_go(arrival: Arrival) -> None:
    """Of whoever waits until a call has left the queue."""
    if arrival.entered is not None:
        arrival.entered()
