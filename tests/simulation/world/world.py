"""What actors see of the run that they are in. Engines differ in when, and whether, they deliver what is sent.

An actor has a name, takes messages (``receive``) and is woken (``wake``). It knows neither threads nor clocks: all that it
does happens in one of these two calls, and every decision is one of ``choices``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from bk_spark.config import DEFAULT_RACK
from bk_spark.entries.digest import master_key
from bk_spark.metadata.registration import BookieAddress, RegisteredBookie
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Invariants
from tests.simulation.world.messages import Broken, Envelope
from tests.simulation.world.observed import Observed

Wake = Callable[[], None]


class Actor(Protocol):
    name: str

    def receive(self, envelope: Envelope) -> None:
        """A message has come."""

    def wake(self, wake: Wake) -> None:
        """The time of ``wake``, which the actor asked for, has come."""


class World:
    """Common to all engines. ``send`` and ``later`` are theirs."""

    def __init__(self, choices: Choices, invariants: Invariants, *, is_traced: bool) -> None:
        self.choices = choices
        self.invariants = invariants
        self.ledger_id = invariants.history.current.ledger_id
        present = invariants.history.current
        self.master_key = master_key(present.password, present.creator_token)
        self.now_ms = 0
        self.is_calm = False
        """No fault happens any more, and no link is slow."""
        self.actors: dict[str, Actor] = {}
        self.copied_to = ""
        """The bookie that last got an add of a recovery or of a re-replication."""
        self.read_only: set[str] = set()
        """Bookies that are registered as such."""
        self.racks: dict[str, str] = {}
        """The racks of bookies; all others are in the default rack."""
        self.faults: Counter[str] = Counter()
        """How many of each kind there were."""
        self.trace: list[str] | None = [] if is_traced else None
        self.observed = Observed(lambda action: None)
        self.driver: Any = None
        """What runs the clients' operations; None for the simulator's own (runner.py, SimulatedDriver)."""
        self._numbers = 0

    def send(self, envelope: Envelope) -> None:
        """Put a message on its way."""
        raise NotImplementedError

    def later(self, delay_ms: int, actor: Actor, wake: Wake) -> None:
        """Have ``actor`` woken after about ``delay_ms``."""
        raise NotImplementedError

    def request(self, source: str, target: str, body: object) -> int:
        """Send a request; gives back the number that its answer will bear."""
        self._numbers += 1
        self.send(Envelope(self._numbers, source, target, body))
        return self._numbers

    def reply(self, request: Envelope, body: object) -> None:
        self.send(Envelope(request.number, request.target, request.source, body, is_reply=True))

    def break_off(self, request: Envelope) -> None:
        """Let the asker of one request know that nothing will come."""
        self.reply(request, Broken(request.number, only=True))

    @property
    def last_number(self) -> int:
        return self._numbers

    def disconnected(self, bookie: str) -> None:
        """A bookie's process ended: all connections to it break."""
        raise NotImplementedError

    def is_split(self, client: str, bookie: str) -> bool:
        """Whether nothing gets through between the two, in one direction at least."""
        raise NotImplementedError

    def registered_bookies(self) -> list[RegisteredBookie]:
        """What the metadata store says of them."""
        racks, read_only = self.racks, self.read_only
        addresses = [BookieAddress(one, "simulated", 1, racks.get(one, DEFAULT_RACK)) for one in self.available()]
        return [RegisteredBookie(one.bookie_id, one, one.bookie_id in read_only) for one in addresses]

    def available(self) -> list[str]:
        """The bookies that are registered; a dead one stays among them for a while."""
        raise NotImplementedError

    def count(self, fault: str) -> None:
        self.faults[fault] += 1

    def note(self, actor: str, *parts: Any) -> None:
        """Write a line of the trace: parts are texts, or messages that describe themselves."""
        if self.trace is not None:
            text = " ".join(one if isinstance(one, str) else one.describe() for one in parts)
            self.trace.append(f"{self.now_ms:>7}  {actor:<10} {text}")
