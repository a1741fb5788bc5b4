"""The application that writes: it appends, forces, closes, as its plan says.

Three kinds: a plain one; one that chooses the ids of its entries, and gives some appends the wrong way round and one twice; one
that defers syncs, to which only what it forced counts as acked.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bk_spark.client.protocol.state_machine import Append, CloseRequested, Command, Confirm, Finish, ForceRequested, Reject
from bk_spark.errors import AppendWindowFullError, BookKeeperError, DuplicateEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.engines.schedule import CHOSEN_IDS, DEFERRED_SYNC, Schedule, WriterPlan
from tests.simulation.world.client_actors import Client
from tests.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class _Append:
    """What is under way under a token. ``first`` is None unless the application chose it."""

    payloads: tuple[bytes, ...]
    first: int | None = None
    is_duplicate: bool = False


class Writer(Client):
    """``is_done`` once every append is resolved and, if it wanted to, it has closed."""

    def __init__(self, world: World, schedule: Schedule, metadata: LedgerMetadata) -> None:
        super().__init__("writer", world, schedule)
        self.error: BookKeeperError | None = None
        self.seen_version = 0
        self._plan: WriterPlan = schedule.writer
        self._todo = _appends(self._plan)
        self._tokens = 0
        self._open: dict[int, _Append] = {}
        self._forces: set[str] = set()
        self._places: set[int] = set()
        """Where the appends are whose places it was told."""
        self._has_asked_to_close = False
        self._machine, self._runner = self._driver.writer(self, schedule, metadata, self._commanded)
        if self._plan.kind == CHOSEN_IDS:
            in_order = sorted((one for one in self._todo if not one.is_duplicate), key=lambda one: one.first or 0)
            world.invariants.appended([payload for one in in_order for payload in one.payloads])

    @property
    def unresolved(self) -> tuple[object, ...]:
        return (*self._open, *self._forces)

    @property
    def is_idle(self) -> bool:
        """Whether it lives, could append more, and has nothing under way."""
        is_broken = self.error is not None or self._machine.error is not None or self._runner.is_broken
        return self.is_alive and not self.is_stopped and not is_broken and not self._open and not self._forces

    def begin(self) -> None:
        self.later(0, self._go_on)

    def _go_on(self) -> None:
        """Append the next batch if there is one and room for it; close after the last."""
        if self._has_asked_to_close:
            return
        may_append = self.error is None and bool(self._todo)
        if may_append and len(self._open) < self._plan.window:
            self._append(self._todo.pop(0))
            self.later(self._plan.pause_ms, self._go_on)
        elif not may_append and (self._is_settled or self._plan.closes_early):
            self._end()

    @property
    def _is_settled(self) -> bool:
        """Whether nothing is under way that will be resolved: what waits for an entry that was refused only a close ends."""
        return isinstance(self.error, AppendWindowFullError) or (not self._open and not self._forces)

    def _append(self, append: _Append) -> None:
        token, self._tokens = self._tokens, self._tokens + 1
        payloads = list(append.payloads)
        if self._plan.kind != CHOSEN_IDS:
            self.world.invariants.appended(payloads)
        where = "" if append.first is None else f" from {append.first} on"
        self.world.note(self.name, f"appends {len(payloads)} entries{where}")
        self._open[token] = append
        self._runner.post(Append(pa.array(payloads, pa.binary()), token, append.first))
        if self._plan.force_every and self._tokens % self._plan.force_every == 0:
            self._forces.add(f"force {token}")
            self.later(self._plan.pause_ms, lambda: self._force(f"force {token}"))

    def _force(self, token: str) -> None:
        self.world.note(self.name, "forces")
        self._runner.post(ForceRequested(token))

    def _end(self) -> None:
        if self._plan.closes:
            self._has_asked_to_close = True
            self.world.note(self.name, "closes")
            self._runner.post(CloseRequested())
        elif self._is_settled:
            self.is_done = True

    # --- what it is told

    def _commanded(self, command: Command) -> None:
        if isinstance(command, Finish):
            self._finished(command)
        elif isinstance(command, (Confirm, Reject)) and isinstance(command.token, str):
            self._forced(command, command.token)
        elif isinstance(command, Confirm):
            self._confirmed(command)
        elif isinstance(command, Reject):
            self._rejected(command)

    def _confirmed(self, command: Confirm) -> None:
        append, first = self._resolved(command.token), command.first_entry_id
        invariants = self.world.invariants
        self.world.note(self.name, f"entries {first}-{first + len(append.payloads) - 1} are confirmed")
        is_its_place = tuple(invariants.history.payloads[first : first + len(append.payloads)]) == append.payloads
        invariants.require(is_its_place and first not in self._places, "I2", f"{append} is confirmed as {first}")
        self._places.add(first)
        is_deferred, last = self._plan.kind == DEFERRED_SYNC, first + len(append.payloads) - 1
        if self._runner.is_told_late:
            known = invariants.history.written if is_deferred else invariants.history.acked
            invariants.require(last <= known, "I2", f"{append} is confirmed as {first}, what is confirmed ends at {known}")
        else:
            (invariants.written if is_deferred else invariants.confirmed)(first, len(append.payloads))
        self.later(self._plan.pause_ms, self._go_on)

    def _rejected(self, command: Reject) -> None:
        append = self._resolved(command.token)
        self.world.note(self.name, f"append {command.token} fails: {command.error}")
        if not (append.is_duplicate and isinstance(command.error, DuplicateEntryError)):
            self.error = self.error or command.error
        self.later(self._plan.pause_ms, self._go_on)

    def _forced(self, command: Confirm | Reject, token: str) -> None:
        """What was confirmed before a writer with immediate syncs forces is durable anyway: there a force only waits."""
        self.world.invariants.require(token in self._forces, "I2", f"{token} was resolved twice")
        self._forces.discard(token)
        if isinstance(command, Confirm):
            self.world.note(self.name, f"{token} is done, entries up to {command.first_entry_id} are durable")
            if self._plan.kind == DEFERRED_SYNC:
                self._note_forced(command.first_entry_id)
        else:
            self.world.note(self.name, f"{token} fails: {command.error}")
        self.later(self._plan.pause_ms, self._go_on)

    def _note_forced(self, last: int) -> None:
        invariants = self.world.invariants
        if self._runner.is_told_late:
            acked = invariants.history.acked
            invariants.require(last <= acked, "I2", f"entries up to {last} are said to be durable, those up to {acked} are")
        else:
            invariants.forced(last)

    def _finished(self, finish: Finish) -> None:
        self.note_finish("closing", finish)
        self.is_done = True
        if finish.error is None:
            is_closed = self.world.invariants.history.last_entry_id is not None
            self.world.invariants.require(is_closed, "I4", "the writer closed, and the store says that the ledger is open")
            if not self._runner.has_failed_marks:
                self.world.invariants.writer_closed(self._runner.sent)

    def _resolved(self, token: object) -> _Append:
        """Each append is confirmed or rejected once."""
        self.world.invariants.require(token in self._open, "I2", f"append {token} was resolved twice")
        assert isinstance(token, int)
        return self._open.pop(token)


def _appends(plan: WriterPlan) -> list[_Append]:
    """What the plan's appends are made of: payload i says that it is entry i."""
    appends, start = [], 0
    for sizes in plan.batches:
        payloads = tuple(b"%d:" % (start + n) + b"x" * size for n, size in enumerate(sizes))
        appends.append(_Append(payloads, start if plan.kind == CHOSEN_IDS else None))
        start += len(sizes)
    return _out_of_order(appends) if plan.kind == CHOSEN_IDS else appends


def _out_of_order(appends: list[_Append]) -> list[_Append]:
    """The first two the wrong way round, and every second pair after them; the first one once more in the end."""
    swapped = list(appends)
    for place in range(0, len(swapped) - 1, 4):
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    first = appends[0]
    return [*swapped, _Append(first.payloads, first.first, is_duplicate=True)]
