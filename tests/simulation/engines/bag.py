"""The bag: whichever message in flight, at random, arrives next. No latencies, no faults of bookies: many cheap schedules.

Some messages are held back until the ledger is closed; some never arrive, and their client is told that the connection
broke. Now and then a client's next deadline comes. Then all that is not held arrives, a fresh recoverer must close the
ledger, what was held arrives, and a reader must find every entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bk_spark.config import LedgerOptions
from bk_spark.metadata.ledger_metadata import new_ledger
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Invariants, Violation
from tests.simulation.engines.schedule import LEDGER_ID, SHAPES, tiny_config
from tests.simulation.scripts.hand_clients import ADDS, RECOVERY, Reader, Recoverer, Writer
from tests.simulation.scripts.hand_world import HandWorld
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.messages import Broken, Envelope
from tests.simulation.world.metadata_store import SimulatedMetadataStore

MAX_STEPS = 1_500
"""Of one phase of a run; the longest take a fifth."""

SETTLE_MS = 200_000
"""How long all that was begun may take: every patience is below it."""


@dataclass(slots=True)
class BagOutcome:
    shape: tuple[int, int, int]
    tape: list[int]
    violation: Violation | None = None
    trace: list[str] = field(default_factory=list)


class _BagWorld(HandWorld):
    """Holds some messages back, and with an add all that follow it in its stream."""

    hold_percent = 0

    def __init__(self, choices: Choices, invariants: Invariants, registered: list[str], *, is_traced: bool) -> None:
        super().__init__(choices, invariants, registered, is_traced=is_traced)
        self._held: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        super().send(envelope)
        link = (envelope.source, envelope.target)
        is_behind = envelope.is_of_stream and any(one.is_of_stream and (one.source, one.target) == link for one in self._held)
        if is_behind or self.choices.chance(self.hold_percent, "held back"):
            self._held.append(self.in_flight.pop())

    def release(self) -> None:
        """What was held is in flight."""
        self.in_flight += self._held
        self._held = []


class BagRun:
    def __init__(self, choices: Choices, *, is_traced: bool = False) -> None:
        self._choices = choices
        self.shape = choices.pick(SHAPES[:10], "shape")
        size, write_quorum, ack_quorum = self.shape
        names = [f"b{number + 1}" for number in range(size + choices.choose(3, "spares"))]
        options = LedgerOptions(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum)
        first = new_ledger(LEDGER_ID, options, tuple(names[:size]), created_ms=0, creator_token=1)
        self.world = _BagWorld(choices, Invariants(first), names, is_traced=is_traced)
        SimulatedMetadataStore(self.world, first, 0)
        for number, name in enumerate(names):
            BookieActor(name, self.world, tiny_config(300, 8), seed=number + 1).start()
        self._writer = Writer("W", self.world, replace(ADDS, add_quorum_timeout_ms=20_000))
        self._recoverers: list[Recoverer] = []
        self._window = choices.pick((100, 1), "entries asked for at a time")
        self._lose_percent = choices.pick((0, 1, 4), "lost")
        self.world.hold_percent = choices.pick((0, 3, 10), "held back")
        self._tick_percent = choices.pick((0, 1, 4), "deadlines")

    def play(self) -> None:
        """Raises Violation."""
        self._chaos()
        self.world.hold_percent = 0
        self._calm()
        closer = Recoverer("closer", self.world)
        self._calm()
        end = self.world.invariants.history.last_entry_id
        self._require(end is not None, f"the ledger cannot be closed: {closer.error}")
        self.world.release()
        self._calm()
        for client in (self._writer, *self._recoverers):
            is_over = client.finish is not None or client.error is not None
            self._require(is_over or client.name == "W", f"{client.name} does not come to an end")
        reader = Reader("reader", self.world)
        self._calm()
        self._require(
            reader.read_up_to == end, f"the ledger ends at {end}, and is read up to {reader.read_up_to}: {reader.error}"
        )

    # --- phases

    def _chaos(self) -> None:
        """What clients are to do comes in between the messages, in its order."""
        todo = self._plan()
        for _ in range(MAX_STEPS):
            ready = [one for one in self.world.in_flight if not self.world.is_blocked(one)]
            if todo and (not ready or self._choices.choose(4, "act") == 0):
                todo.pop(0)()
                self.world.settle()
            elif ready:
                self._move(self._choices.pick(ready, "next message"))
            else:
                return

    def _plan(self) -> list[Callable[[], None]]:
        choices, writer = self._choices, self._writer
        todo: list[Callable[[], None]] = []
        for _ in range(choices.between(1, 4, "appends")):
            count = choices.between(1, 2, "entries")
            todo.append(lambda count=count: writer.append(count))  # type: ignore[misc]
        for number in range(choices.choose(3, "recoverers")):
            todo.insert(choices.choose(len(todo) + 1, "recovers at"), lambda number=number: self._recover(number))  # type: ignore[misc]
        if choices.choose(2, "closes"):
            todo.append(writer.close)
        return todo

    def _recover(self, number: int) -> None:
        limits = replace(RECOVERY, window_entries=self._window)
        self._recoverers.append(Recoverer(f"R{number}", self.world, limits))

    def _move(self, envelope: Envelope) -> None:
        if not isinstance(envelope.body, Broken) and self._choices.chance(self._lose_percent, "lost"):
            self._lose(envelope)
        elif self._choices.chance(self._tick_percent, "deadline"):
            due_ms = self.world.next_timer_ms
            if due_ms is not None:
                self.world.pass_time(due_ms)
        else:
            self.world.deliver(envelope)

    def _lose(self, envelope: Envelope) -> None:
        self.world.in_flight.remove(envelope)
        self.world.note(envelope.target, f"never gets {self.world.name(envelope)}")
        client, server = (envelope.target, envelope.source) if envelope.is_reply else (envelope.source, envelope.target)
        broken = Broken(envelope.number, only=True)
        self.world.deliver_now(Envelope(envelope.number, server, client, broken, is_reply=True))

    def _calm(self) -> None:
        """Everything arrives that is not held, in order, and time passes."""
        world, end_ms = self.world, self.world.now_ms + SETTLE_MS
        for _ in range(MAX_STEPS):
            ready = next((one for one in world.in_flight if not world.is_blocked(one)), None)
            if ready is not None:
                world.deliver(ready)
            elif world.next_timer_ms is not None and world.next_timer_ms <= end_ms:
                world.pass_time(world.next_timer_ms)
            else:
                world.pass_time(end_ms)
                return
        raise Violation("I14", f"it goes on after {MAX_STEPS} steps")

    def _require(self, holds: bool, problem: str) -> None:
        self.world.invariants.require(holds, "I14", problem)


def run_bag(choices: Choices, *, is_traced: bool = False) -> BagOutcome:
    """Play one schedule."""
    run = BagRun(choices, is_traced=is_traced)
    outcome = BagOutcome(run.shape, choices.tape, trace=run.world.trace or [])
    try:
        run.play()
    except Violation as violation:
        outcome.violation = violation
    return outcome
