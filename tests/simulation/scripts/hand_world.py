"""A world in which nothing moves unless it is told to: for scripts, and for the bag.

Every message stays *in flight* until it is delivered or dropped, and has a name, as in ``W add 0 -> b1``; its answer bears the
same word the other way, ``b1 add 0 -> W``. The adds of one client to one bookie, and the answers to them, keep their order:
they travel over one stream. What is due at once (a bookie's sync, a client's choice of bookies) is done before the next
message, unless the bookie's syncs are held. Time passes only when it is told to; then what is due is done in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fnmatch import fnmatchcase

from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    StoreLastAddConfirmedRequest,
)
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Invariants, Violation
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.messages import Broken, Envelope, GetMetadata, MarkLedger, SetMetadata
from tests.simulation.world.world import Actor, Wake, World

MAX_WAKES = 5_000
"""In one go. More mean that something goes round in circles."""

AT_ONCE_MS = 4
"""A delay up to this one is none: the longest that a bookie waits with its sync."""


class HandWorld(World):
    """``registered`` are the bookies that new ensembles may have."""

    def __init__(self, choices: Choices, invariants: Invariants, registered: list[str], *, is_traced: bool = False) -> None:
        super().__init__(choices, invariants, is_traced=is_traced)
        self.registered = registered
        self.in_flight: list[Envelope] = []
        self.held_syncs: set[str] = set()
        """Bookies that do not sync for now."""
        self._at_once: list[tuple[Actor, Wake]] = []
        self._timers: list[tuple[int, int, Actor, Wake]] = []
        self._timer_number = 0
        self._words: dict[int, str] = {}

    # --- what actors call

    def send(self, envelope: Envelope) -> None:
        if not envelope.is_reply:
            self._words[envelope.number] = _word(envelope.body)
        self.in_flight.append(envelope)

    def later(self, delay_ms: int, actor: Actor, wake: Wake) -> None:
        if delay_ms <= AT_ONCE_MS:
            self._at_once.append((actor, wake))
            return
        self._timer_number += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._timer_number, actor, wake))

    def disconnected(self, bookie: str) -> None:
        """What was on its way to and from the bookie is gone, and clients can be told so."""
        self.in_flight = [one for one in self.in_flight if bookie not in (one.source, one.target)]
        for name, actor in list(self.actors.items()):
            if hasattr(actor, "call"):
                self.in_flight.append(Envelope(0, bookie, name, Broken(self.last_number), is_reply=True))

    def available(self) -> list[str]:
        return list(self.registered)

    # --- what moves it

    def name(self, envelope: Envelope) -> str:
        word = "break" if isinstance(envelope.body, Broken) else self._words[envelope.number]
        return f"{envelope.source} {word} -> {envelope.target}"

    def matching(self, pattern: str) -> list[Envelope]:
        """The messages in flight whose names match, with ``*`` for anything, in the order in which they were sent."""
        return [one for one in self.in_flight if fnmatchcase(self.name(one), pattern)]

    def is_blocked(self, envelope: Envelope) -> bool:
        """Whether an earlier message of its stream is still in flight."""
        if not isinstance(envelope.body, (AddRequest, AddReply)):
            return False
        link = (envelope.source, envelope.target)
        stream = (one for one in self.in_flight if isinstance(one.body, (AddRequest, AddReply)))
        return next(one for one in stream if (one.source, one.target) == link) is not envelope

    def deliver(self, envelope: Envelope) -> None:
        self.in_flight.remove(envelope)
        self.deliver_now(envelope)

    def deliver_now(self, envelope: Envelope) -> None:
        """A message arrives that was not in flight."""
        self.actors[envelope.target].receive(envelope)
        self.settle()

    def settle(self) -> None:
        """Do what is due at once."""
        held: list[tuple[Actor, Wake]] = []
        for actor, wake in self._due_at_once():
            if isinstance(actor, BookieActor) and actor.name in self.held_syncs:
                held.append((actor, wake))
            else:
                actor.wake(wake)
        self._at_once = held

    def _due_at_once(self) -> Iterator[tuple[Actor, Wake]]:
        for _ in range(MAX_WAKES):
            if not self._at_once:
                return
            yield self._at_once.pop(0)
        raise Violation("I14", "it goes round in circles")

    def pass_time(self, until_ms: int) -> None:
        """Let the clock go on, and do what is due by then."""
        for _ in range(MAX_WAKES):
            if not self._timers or self._timers[0][0] > until_ms:
                break
            self.now_ms, _, actor, wake = heapq.heappop(self._timers)
            actor.wake(wake)
            self.settle()
        else:
            raise Violation("I14", "it goes round in circles")
        self.now_ms = until_ms

    @property
    def next_timer_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None


def _word(body: object) -> str:
    """What a request is called."""
    match body:
        case AddRequest():
            header = body.batch.header
            first, last = header.first_entry_id, header.last_entry_id
            return f"add {first}" if first == last else f"add {first}-{last}"
        case ReadRequest():
            return f"read {body.first}"
        case LastAddConfirmedRequest():
            return "fence" if body.fence else "lac"
        case StoreLastAddConfirmedRequest():
            return f"tell {body.last_add_confirmed}"
        case ForceRequest():
            return "force"
        case GetMetadata():
            return "get"
        case SetMetadata():
            return "set"
        case MarkLedger():
            return "mark"
        case _:
            return type(body).__name__
