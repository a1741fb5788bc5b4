"""Every schedule of a small scope: breadth first, so that what is found is found on a shortest way.

A global state is the metadata, the bookies, a local state of each client (local_states.py), the messages in flight, and what
the application was told. From each state every message in flight may arrive next; one that never does is a lost one. A client
may also run into its next deadline, within a budget. Clients are the shipped state machines; bookies are models
(model_bookie.py). The bound of time-outs is a bound: what a search has *exhausted* is its scope, no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Append,
    CloseRequested,
    Command,
    Confirm,
    Event,
    ForceAnswered,
    MarkAnswered,
    MarkUnderReplicated,
    MetadataRead,
    MetadataWritten,
    ReadMetadata,
    ReplacementsChosen,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    Start,
    Tick,
    WriteMetadata,
)
from bk_spark.client.protocol.state_machine import ChooseReplacements as Choose
from bk_spark.config import LedgerOptions
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import master_key
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.wire.messages import AddRequest, LastAddConfirmedReply, Status
from tests.simulation.engines.history import History
from tests.simulation.engines.invariants import Invariants, Violation
from tests.simulation.engines.local_states import LocalStates, Step
from tests.simulation.engines.schedule import LEDGER_ID
from tests.simulation.scripts.hand_clients import ADDS, RECOVERY
from tests.simulation.world.model_bookie import ModelBookie

_Value = TypeVar("_Value")

KEY = master_key(b"")
WRITER = 0
METADATA = -1
"""Stands for the metadata store where bookies have numbers."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of all there is. ``timeouts`` is how many deadlines clients may run into, all together."""

    shape: tuple[int, int, int]
    entries: int = 1
    closes: bool = False
    recoverers: int = 1
    spares: int = 0
    timeouts: int = 0
    window: int = 100


class State(NamedTuple):
    """Small numbers only: what a message, a bookie or the metadata says has a number of its own."""

    version: int
    metadata: int
    bookies: tuple[int, ...]
    clients: tuple[int, ...]
    messages: tuple[int, ...]
    """Ascending."""
    appended: int
    is_closing: bool
    timeouts: int
    acked: int
    shown_lac: int


@dataclass(frozen=True, slots=True)
class Message:
    client: int
    server: int
    request: Command
    answer: tuple[Event, ...] | None = None
    """None on the way to the server."""

    @property
    def order(self) -> tuple[int, int, bool] | None:
        """The stream that it travels in; None if it may overtake others."""
        is_add = isinstance(self.request, SendAdd)
        return (self.client, self.server, self.answer is None) if is_add else None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to. ``violation`` has the steps that led to it in ``trace``."""

    states: int
    is_exhausted: bool
    violation: Violation | None = None
    trace: tuple[str, ...] = ()


_Move = tuple[str, Callable[[], State]]
"""What happens next, and what does it."""


class _Numbered(Generic[_Value]):
    """Values with a number each."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._numbers: dict[_Value, int] = {}

    def number(self, value: _Value) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


@dataclass(frozen=True, slots=True)
class _Effects:
    """What the commands of a step do outside of the client."""

    sent: tuple[int, ...]
    confirmed: tuple[int, ...]
    """First entry ids."""
    questions: tuple[Command, ...]
    """They are answered at once: bookies are chosen and forced, and the ledger is marked."""


class Search:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        size, write_quorum, ack_quorum = scope.shape
        options = LedgerOptions(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum)
        self._names = [f"b{number + 1}" for number in range(size + scope.spares)]
        self._first = new_ledger(LEDGER_ID, options, tuple(self._names[:size]), created_ms=0, creator_token=1)
        limits = replace(RECOVERY, window_entries=scope.window)
        writer = LocalStates(lambda: AddEntries(self._first, 0, ADDS))
        recoverers = [LocalStates(lambda: RecoverLedger(self._first, 0, limits)) for _ in range(scope.recoverers)]
        self._clients = [writer, *recoverers]
        self._payloads = [b"x" * (1 + entry_id % 3) + b"%d" % entry_id for entry_id in range(scope.entries)]
        self._messages: _Numbered[Message] = _Numbered()
        self._bookies: _Numbered[ModelBookie] = _Numbered()
        self._metadata: _Numbered[LedgerMetadata] = _Numbered()
        self._at_bookies: dict[tuple[int, int], tuple[int, int]] = {}
        """Bookie and message → bookie and answer."""
        self._effects: dict[tuple[int, int], _Effects] = {}
        self._parents: dict[State, tuple[State, str] | None] = {}

    def run(self, maximum_states: int) -> Found:
        """Search until all is seen, so many states are, or an invariant does not hold."""
        bookies = (self._bookies.number(ModelBookie()),) * len(self._names)
        metadata = self._metadata.number(self._first)
        first = State(0, metadata, bookies, (0,) * len(self._clients), (), 0, False, 0, NO_ENTRY, NO_ENTRY)
        self._parents = {first: None}
        waiting = deque([first])
        while waiting:
            state = waiting.popleft()
            for what, go in self._next(state):
                try:
                    after = go()
                except Violation as violation:
                    way = (*self._way_to(state), self._describe(what), str(violation))
                    return Found(len(self._parents), False, violation, way)
                if after not in self._parents:
                    self._parents[after] = (state, what)
                    waiting.append(after)
            if len(self._parents) >= maximum_states:
                return Found(len(self._parents), False)
        return Found(len(self._parents), True)

    # --- what may happen next

    def _next(self, state: State) -> Iterator[_Move]:
        streams = set()
        for number in state.messages:
            message = self._messages.values[number]
            if message.order is None or message.order not in streams:
                streams.add(message.order)
                yield f"message {number}", partial(self._deliver, state, number, message)
        yield from self._writer_acts(state)
        for client in range(1, len(self._clients)):
            if state.clients[client] == 0:
                yield f"client {client} recovers", partial(self._act, state, client, "start", Start())
        if state.timeouts < self.scope.timeouts:
            yield from self._time_out(state)

    def _writer_acts(self, state: State) -> Iterator[_Move]:
        if state.appended < self.scope.entries and not state.is_closing:
            entry_id = state.appended
            append = Append(pa.array([self._payloads[entry_id]], pa.binary()), entry_id)
            after = state._replace(appended=entry_id + 1)
            yield f"append {entry_id}", partial(self._act, after, WRITER, ("append", entry_id), append)
        if self.scope.closes and not state.is_closing:
            yield "close", partial(self._act, state._replace(is_closing=True), WRITER, "close", CloseRequested())

    def _time_out(self, state: State) -> Iterator[_Move]:
        for client, local in enumerate(state.clients):
            if self._clients[client].deadline_ms(local) is not None:
                yield f"client {client} at its deadline", partial(self._tick, state, client)

    def _tick(self, state: State, client: int) -> State:
        step = self._clients[client].step(state.clients[client], "deadline", lambda: (Tick(),), at_deadline=True)
        return self._stepped(state._replace(timeouts=state.timeouts + 1), client, step)

    def _act(self, state: State, client: int, key: object, event: Event) -> State:
        return self._stepped(state, client, self._clients[client].step(state.clients[client], key, lambda: (event,)))

    def _deliver(self, state: State, number: int, message: Message) -> State:
        state = state._replace(messages=tuple(one for one in state.messages if one != number))
        if message.answer is not None:
            return self._answered(state, number, message)
        if message.server == METADATA:
            return self._at_the_store(state, message)
        return self._at_a_bookie(state, number, message)

    # --- servers

    def _at_the_store(self, state: State, message: Message) -> State:
        request = message.request
        answer: Event = MetadataRead(self._metadata.values[state.metadata], state.version)
        if isinstance(request, WriteMetadata) and request.expected_version == state.version:
            self._invariants(state).metadata_written(request.metadata)
            state = state._replace(version=state.version + 1, metadata=self._metadata.number(request.metadata))
            answer = MetadataWritten(state.version)
        return _with(state, self._messages.number(replace(message, answer=(answer,))))

    def _at_a_bookie(self, state: State, number: int, message: Message) -> State:
        key = (state.bookies[message.server], number)
        if key not in self._at_bookies:
            assert isinstance(message.request, SendAdd | SendRead | SendReadLastAddConfirmed)
            after, answer = self._bookies.values[key[0]].receive(message.request)
            self._at_bookies[key] = self._bookies.number(after), self._messages.number(replace(message, answer=answer))
        bookie, answer_number = self._at_bookies[key]
        state = self._checked(state, message, bookie, answer_number)
        bookies = (*state.bookies[: message.server], bookie, *state.bookies[message.server + 1 :])
        return _with(state._replace(bookies=bookies), answer_number)

    def _checked(self, state: State, message: Message, bookie: int, answer_number: int) -> State:
        name, request, after = self._names[message.server], message.request, self._bookies.values[bookie]
        if isinstance(request, SendAdd):
            answer = self._messages.values[answer_number].answer
            assert answer is not None
            assert isinstance(answer[0], AddAnswered)
            add = AddRequest(request.request_id, name, KEY, request.batch, request.recovery)
            was_fenced = self._bookies.values[state.bookies[message.server]].is_fenced
            self._invariants(state).add_answered(name, add, answer[0].status, was_fenced=was_fenced)
        elif isinstance(request, SendReadLastAddConfirmed):
            reply = LastAddConfirmedReply(Status.OK, after.last_add_confirmed, "", after.is_fenced)
            self._invariants(state).lac_answered(name, reply)
            return state._replace(shown_lac=max(state.shown_lac, after.last_add_confirmed))
        return state

    # --- clients

    def _answered(self, state: State, number: int, message: Message) -> State:
        step = self._step_of(state, number, message)
        return self._stepped(state, message.client, step)

    def _step_of(self, state: State, number: int, message: Message) -> Step:
        client, answer = self._clients[message.client], message.answer
        assert answer is not None
        return client.step(state.clients[message.client], number, lambda: answer)

    def _stepped(self, state: State, client: int, step: Step) -> State:
        clients = (*state.clients[:client], step.state, *state.clients[client + 1 :])
        effects = self._effects_of(client, step)
        state = _with(state._replace(clients=clients), *effects.sent)
        for first in effects.confirmed:
            self._invariants(state).confirmed(first, 1)
            state = state._replace(acked=first)
        for question in effects.questions:
            state = self._act(state, client, question, self._answer_at_once(question))
        return self._without_ignored(state, client)

    def _effects_of(self, client: int, step: Step) -> _Effects:
        """Steps are made once and stay, so an effect is known by its step."""
        key = (client, id(step))
        if key not in self._effects:
            sent = [message for message in (self._message(client, command) for command in step.commands) if message]
            confirmed = [command.first_entry_id for command in step.commands if isinstance(command, Confirm)]
            questions = tuple(
                command for command in step.commands if isinstance(command, Choose | SendForce | MarkUnderReplicated)
            )
            self._effects[key] = _Effects(tuple(self._messages.number(one) for one in sent), tuple(confirmed), questions)
        return self._effects[key]

    def _message(self, client: int, command: Command) -> Message | None:
        match command:
            case SendAdd() | SendRead() | SendReadLastAddConfirmed():
                return Message(client, self._names.index(command.bookie_id), command)
            case WriteMetadata() | ReadMetadata():
                return Message(client, METADATA, command)
            case _:
                return None

    def _answer_at_once(self, question: Command) -> Event:
        """No bookie of a search is ever started again, so what it acked is durable."""
        if isinstance(question, SendForce):
            return ForceAnswered(question.request_id, Status.OK)
        return self._chosen(question) if isinstance(question, Choose) else MarkAnswered()

    def _chosen(self, question: Choose) -> ReplacementsChosen:
        free = [one for one in self._names if one not in question.ensemble and one not in question.excluded]
        return ReplacementsChosen(question.request_id, tuple(zip(question.slots, free, strict=False)))

    def _without_ignored(self, state: State, client: int) -> State:
        """Answers that the client does not wait for any more change nothing, whenever they come."""
        kept = [number for number in state.messages if not self._is_ignored(state, number, client)]
        return state._replace(messages=tuple(kept)) if len(kept) < len(state.messages) else state

    def _is_ignored(self, state: State, number: int, client: int) -> bool:
        message = self._messages.values[number]
        is_answer = message.client == client and message.answer is not None
        return is_answer and self._step_of(state, number, message).is_ignored

    # --- invariants and the trace

    def _invariants(self, state: State) -> Invariants:
        invariants = Invariants(self._first)
        history: History = invariants.history
        history.metadata = [self._first] * state.version + [self._metadata.values[state.metadata]]
        history.payloads = self._payloads[: state.appended]
        history.acked, history.shown_lac = state.acked, state.shown_lac
        bookies = (self._bookies.values[number] for number in state.bookies)
        history.acknowledged = {name: one.entry_ids for name, one in zip(self._names, bookies, strict=True)}
        return invariants

    def _way_to(self, state: State) -> list[str]:
        lines: list[str] = []
        step = self._parents[state]
        while step is not None:
            state, what = step
            lines.append(self._describe(what))
            step = self._parents[state]
        return lines[::-1]

    def _describe(self, what: str) -> str:
        kind, _, number = what.partition(" ")
        if kind != "message":
            return what
        message = self._messages.values[int(number)]
        server = "metadata" if message.server == METADATA else self._names[message.server]
        if message.answer is None:
            return f"client {message.client} -> {server}: {message.request}"
        return f"{server} -> client {message.client}: {message.answer}"


def search(scope: Scope, maximum_states: int) -> Found:
    return Search(scope).run(maximum_states)


LARGE = (
    Scope((2, 2, 1), closes=True, spares=1, timeouts=1),
    Scope((2, 2, 1), recoverers=2),
    Scope((2, 2, 2), recoverers=2),
    Scope((2, 2, 2), entries=2, closes=True),
    Scope((2, 2, 2), entries=2, closes=True, spares=1, timeouts=2, window=1),
    Scope((3, 2, 2), entries=2, closes=True),
    Scope((3, 3, 2), closes=True),
)
"""Scopes for a night; most are bounded, not exhausted."""


def report(maximum_states: int) -> Iterator[tuple[str, bool]]:
    """Search through the large scopes: a text each, and whether no violation was found."""
    for scope in LARGE:
        found = search(scope, maximum_states)
        how = "exhausted" if found.is_exhausted else "bounded"
        yield "\n".join((f"{found.states} states, {how}: {scope}", *found.trace)), found.violation is None


def _with(state: State, *numbers: int) -> State:
    """The same with more messages in flight."""
    return state._replace(messages=tuple(sorted({*state.messages, *numbers}))) if numbers else state
