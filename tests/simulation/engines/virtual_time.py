"""The network and the clock of the main engine: what is sent arrives after a latency, unless something happens to it.

Each link has a latency of its own for the whole run, from 1 to 400 ms; some messages take sixty times as long. Adds and
their answers travel in order, as over one TCP connection, and a connection that breaks takes all that is on its way with it,
save perhaps the first adds, which had arrived already. Messages over a split link wait for its end or the end of their
connection. gRPC cannot duplicate an add, so nothing is duplicated here; resends are the clients' own.

A client learns of a broken connection soon, or after KEEPALIVE_MS.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

from bk_spark.wire.messages import AddReply
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Invariants, Violation
from tests.simulation.engines.schedule import Weather
from tests.simulation.world.garbling import garbled
from tests.simulation.world.messages import METADATA, Broken, Envelope, ReadAnswer
from tests.simulation.world.world import Actor, Wake, World

KEEPALIVE_MS = 15_000
LATENCY_STEPS = 16
SLOWEST_MS = 400
CALM_MS = 20
"""The slowest link of a network without faults: within every timeout that a schedule draws."""

STRAGGLER_FACTOR = 60
MAX_STEPS = 30_000
"""Events of one run; the longest ones have a tenth of that. More mean that something goes round in circles."""


class VirtualTimeWorld(World):
    def __init__(self, choices: Choices, invariants: Invariants, weather: Weather, *, is_traced: bool = False) -> None:
        super().__init__(choices, invariants, is_traced=is_traced)
        self.weather = weather
        self.steps = 0
        self.split: set[tuple[str, str]] = set()
        """Links, source and target, over which nothing gets through."""
        self.list_available: Callable[[], list[str]] = list
        self._events: list[tuple[int, int, Envelope | tuple[Actor, Wake]]] = []
        self._sequence = 0
        self._latency_ms: dict[tuple[str, str], int] = {}
        self._in_order_ms: dict[tuple[str, str], int] = {}
        self._waiting: list[Envelope] = []
        self._cut: dict[tuple[str, str], int] = {}

    # --- what actors call

    def send(self, envelope: Envelope) -> None:
        link = (envelope.source, envelope.target)
        if envelope.is_reply and self._cut.get(link, 0) >= envelope.number and not isinstance(envelope.body, Broken):
            return  # its connection is gone
        if link in self.split:
            self._waiting.append(envelope)
        elif self.choices.chance(self.weather.lost, "lost"):
            self._lose(envelope)
        else:
            if isinstance(envelope.body, ReadAnswer) and self.choices.chance(self.weather.garbled, "garbled"):
                envelope.body = garbled(envelope.body, self.choices)
                self.count("garbled answers")
            self._put(self._arrival_ms(envelope), envelope)

    def later(self, delay_ms: int, actor: Actor, wake: Wake) -> None:
        self._put(self.now_ms + delay_ms, (actor, wake))

    def disconnected(self, bookie: str) -> None:
        for one in self._under_way():
            if one.target == bookie or (one.source == bookie and not isinstance(one.body, Broken)):
                one.is_lost = True
        for client, target in list(self._latency_ms):
            if target == bookie:
                self._tell_broken(client, bookie)

    def is_split(self, client: str, bookie: str) -> bool:
        return not self.split.isdisjoint({(client, bookie), (bookie, client)})

    def available(self) -> list[str]:
        return self.list_available()

    # --- what faults call

    def break_connection(self, client: str, bookie: str) -> None:
        """What is on its way between the two is lost, save perhaps the first adds."""
        adds = sorted((one for one in self._under_way() if self._is_add(one, client, bookie)), key=lambda one: one.number)
        lost = self.choices.choose(len(adds) + 1, "adds lost with their connection")
        for one in adds[len(adds) - lost :]:
            one.is_lost = True
        for one in self._under_way():
            if (one.source, one.target) == (bookie, client) and not isinstance(one.body, Broken):
                one.is_lost = True
        self.note(bookie, f"connection of {client} breaks")
        self._tell_broken(client, bookie)

    def part(self, links: list[tuple[str, str]]) -> None:
        """Split ``links``: what is on its way over them waits, too."""
        self.split |= set(links)
        for one in self._under_way():
            if (one.source, one.target) in self.split and not one.is_lost and one not in self._waiting:
                self._waiting.append(replace(one))
                one.is_lost = True

    def heal(self, links: list[tuple[str, str]] | None = None, *, but: str | None = None) -> None:
        """End the split of ``links``, or of all, save those from and to ``but``: what waits for it goes on."""
        healed = self.split if links is None else set(links)
        self.split = {link for link in self.split if link not in healed or (but is not None and but in link)}
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            if not envelope.is_lost:
                self.send(envelope)

    # --- the run

    def run(self, until_ms: int | None = None) -> None:
        """Deliver and wake until nothing is left to be, or ``until_ms``."""
        events = self._events
        while events and (until_ms is None or events[0][0] <= until_ms):
            self.now_ms, _, what = heapq.heappop(events)
            self._step(what)
        if until_ms is not None:
            self.now_ms = max(self.now_ms, until_ms)

    def _step(self, what: Envelope | tuple[Actor, Wake]) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Violation("I14", f"it goes on after {MAX_STEPS} steps")
        if not isinstance(what, Envelope):
            actor, wake = what
            actor.wake(wake)
        elif not what.is_lost:
            self.actors[what.target].receive(what)

    def _put(self, due_ms: int, what: Envelope | tuple[Actor, Wake]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (due_ms, self._sequence, what))

    # --- latency and loss

    def _arrival_ms(self, envelope: Envelope) -> int:
        link = (envelope.source, envelope.target)
        base = min(self._base_ms(link), CALM_MS) if self.is_calm else self._base_ms(link)
        delay_ms = base + self.choices.choose(base // 2 + 1, "latency")
        if self.choices.chance(self.weather.stragglers, "straggler"):
            self.count("stragglers")
            delay_ms *= STRAGGLER_FACTOR
        due_ms = self.now_ms + delay_ms
        if envelope.is_of_stream or isinstance(envelope.body, AddReply):
            due_ms = self._in_order_ms[link] = max(due_ms, self._in_order_ms.get(link, 0))
        return due_ms

    def _base_ms(self, link: tuple[str, str]) -> int:
        if link not in self._latency_ms:
            step = self.choices.choose(self.weather.spread, "latency of a link")
            self._latency_ms[link] = int(SLOWEST_MS ** (step / (LATENCY_STEPS - 1)))
        return self._latency_ms[link]

    def _lose(self, envelope: Envelope) -> None:
        self.count("lost replies" if envelope.is_reply else "lost requests")
        self.note(envelope.target, f"never gets from {envelope.source}:", _text(envelope.body))
        client, server = (envelope.target, envelope.source) if envelope.is_reply else (envelope.source, envelope.target)
        if envelope.is_of_stream or isinstance(envelope.body, AddReply):
            self.break_connection(client, server)
            return
        delay_ms = self.choices.pick((20, KEEPALIVE_MS), "loss noticed after")
        broken = envelope.body if isinstance(envelope.body, Broken) else Broken(envelope.number, only=True)
        told = Envelope(envelope.number, server, client, broken, is_reply=True)
        self._put(self.now_ms + delay_ms, told)
        if server == METADATA and not envelope.is_reply and self.choices.choose(2, "arrives all the same"):
            self._put(self.now_ms + self.choices.pick((100, 1_000, 20_000), "arrives after"), envelope)

    def _tell_broken(self, client: str, bookie: str) -> None:
        upto = self.last_number
        self._cut[bookie, client] = upto
        delay_ms = self.choices.pick((1, 50, KEEPALIVE_MS), "break noticed after")
        self._put(self.now_ms + delay_ms, Envelope(0, bookie, client, Broken(upto), is_reply=True))

    def _under_way(self) -> list[Envelope]:
        return [one for _, _, one in sorted(self._events, key=_order) if isinstance(one, Envelope)] + self._waiting

    def _is_add(self, one: Envelope, client: str, bookie: str) -> bool:
        return one.is_of_stream and (one.source, one.target) == (client, bookie) and not one.is_lost


def _order(event: tuple[int, int, object]) -> tuple[int, int]:
    return event[0], event[1]


def _text(body: object) -> str:
    return body.describe() if hasattr(body, "describe") else str(body)
