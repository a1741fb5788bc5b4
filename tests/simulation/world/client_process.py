"""A client process: calls that wait for answers, timers, and what may befall it: stopped for a while, or killed.

A stopped process (SIGSTOP) finds all answers and timers when it goes on, one after the other, and its clock for deadlines
does not count the time it stood still (event_loop.py). A killed one takes nothing in any more.
"""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.driver.client_context import EnsembleChoice
from bk_spark.config import ClientConfig
from tests.simulation.world.messages import Broken, Envelope
from tests.simulation.world.world import Wake, World

OnAnswer = Callable[[object], None]


class ClientProcess:
    """``answer`` callbacks get the body of the reply, or Broken, at most once."""

    def __init__(self, name: str, world: World, config: ClientConfig) -> None:
        self.name = name
        self.world = world
        self.config = config
        self.is_alive = True
        self.is_stopped = False
        self.seen_version = -1
        """The newest metadata that this client's session has seen."""
        self.placement = EnsembleChoice(config, lambda count: world.choices.choose(count, "placement"))
        self._waiting: dict[int, tuple[str, OnAnswer]] = {}
        self._held: list[Wake] = []
        self._stopped_at_ms = 0
        self._stood_still_ms = 0
        world.actors[name] = self

    @property
    def unresolved(self) -> tuple[object, ...]:
        """What its application waits for."""
        return ()

    @property
    def now_ms(self) -> int:
        return self.world.now_ms - self._stood_still_ms

    def call(self, target: str, body: object, on_answer: OnAnswer) -> int:
        number = self.world.request(self.name, target, body)
        self._waiting[number] = (target, on_answer)
        return number

    def cancel(self, number: int) -> None:
        """The answer is of no interest."""
        self._waiting.pop(number, None)

    def later(self, delay_ms: int, wake: Wake) -> None:
        self.world.later(delay_ms, self, wake)

    # --- what happens to it

    def receive(self, envelope: Envelope) -> None:
        self.wake(lambda: self._take_in(envelope))

    def wake(self, wake: Wake) -> None:
        if self.is_alive and self.is_stopped:
            self._held.append(wake)
        elif self.is_alive:
            wake()

    def stop(self) -> None:
        if self.is_alive and not self.is_stopped:
            self.is_stopped, self._stopped_at_ms = True, self.world.now_ms
            self.world.note(self.name, "is stopped")

    def go_on(self) -> None:
        if not self.is_alive or not self.is_stopped:
            return
        self.is_stopped = False
        self._stood_still_ms += self.world.now_ms - self._stopped_at_ms
        self.world.note(self.name, "goes on")
        held, self._held = self._held, []
        for wake in held:
            self.wake(wake)

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._waiting.clear()
            self._held.clear()
            self.world.note(self.name, "is killed")

    def _take_in(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, Broken) and not body.only:
            self._broke_off(envelope.source, body)
            return
        _, on_answer = self._waiting.pop(envelope.number, (None, None))
        if on_answer is not None:
            self.world.note(self.name, f"<- {envelope.source}:", body)
            on_answer(body)

    def _broke_off(self, target: str, broken: Broken) -> None:
        numbers = [n for n, (other, _) in self._waiting.items() if other == target and n <= broken.upto]
        if numbers:
            self.world.note(self.name, f"<- {target}:", broken)
        for number in numbers:
            _, on_answer = self._waiting.pop(number, (None, None))
            if on_answer is not None:
                on_answer(broken)
