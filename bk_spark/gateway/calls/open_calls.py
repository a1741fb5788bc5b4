"""The calls that are open: who made them, how many there may be, how fast they may go, and which wait for their callers.

A call has a thread of gRPC's. What it waits for decides who ends it:

- *For the cluster*: the client's own limits of time.
- *For its caller* to take a message, or to send the only one of its request: ``CallWatch`` ends it after ``stall_s``.
- *For the caller's next batch*: the call itself looks up once a second (``incoming.py``).
- *For its turn*, where an identity is limited to ``bytes_per_s``: the call itself, which paces the others of its identity, too.

Ref: DESIGN.md, "The gateway".
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from bk_spark.entries.rate import ByteRate
from bk_spark.errors import GatewayBusyError
from bk_spark.gateway.calls.limit_audit import LimitAudit
from bk_spark.gateway.rights import CallerIdentity
from bk_spark.gateway.settings import GatewayConfig

LOOK_S: Final = 1.0
"""How often a call that waits looks whether it is to end: a revoked token, or a stop, is noticed after so long."""

_UNAUTHENTICATED_CALLS: Final = 64
"""Threads beside those of ``max_calls``, for refusals: each takes milliseconds."""

Clock = Callable[[], float]


@dataclass(eq=False)
class OpenCall:
    """One call. Its own thread uses it, and others look."""

    method: str
    peer: str
    identity: CallerIdentity
    context: Any
    """gRPC's; None once the call has ended (``release``)."""
    calls: GatewayCalls
    log: str = ""
    """The log that it is about, once that is known."""
    is_tail: bool = False
    waits_since: float | None = None
    """Since when it has waited for its caller; None while it does not."""
    ended_by_us: str = ""
    """Why this process ended it."""
    check: Callable[[], None] = field(default=lambda: None)
    """Raises once the caller may not go on."""

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for an answer any more."""
        context = self.context
        return context is None or not context.is_active()

    def release(self) -> None:
        """The call has ended. Whatever still knows it, such as a watch of ZooKeeper's, keeps no stream open: a connection has
        256 of them, and refuses further calls when all are taken.
        """
        self.context = None

    def look(self) -> None:
        """Raise if the call is to end: the gateway stops, or the caller may not go on."""
        self.calls.check_going()
        self.check()

    @contextmanager
    def waiting_for_caller(self) -> Iterator[None]:
        self.waits_since = self.calls.clock()
        try:
            yield
        finally:
            self.waits_since = None

    def pace(self, nbytes: int) -> None:
        """So much was sent or came: wait until the identity's rate allows the next. Raises as ``look``."""
        while not self.is_over and (wait_s := self.calls.wait_s(self.identity, nbytes)) > 0:
            if nbytes:
                self.tell_limit("bytes_per_s")
            nbytes = 0
            time.sleep(min(wait_s, LOOK_S))
            self.look()

    def tell_limit(self, setting: str) -> None:
        """The audit log is told that this call has reached the limit of that name."""
        self.calls.audit.reached(setting, self.identity, self.peer, self.log)


class GatewayCalls:
    """All open calls of a gateway. From any thread."""

    def __init__(self, config: GatewayConfig, clock: Clock = time.monotonic) -> None:
        self._config = config
        self.clock: Final = clock
        self.audit: Final = LimitAudit(clock)
        self._lock = threading.Lock()
        """Held for moments, around all below."""
        self._open: set[OpenCall] = set()
        self._of: Counter[CallerIdentity] = Counter()
        self._tails_of: Counter[CallerIdentity] = Counter()
        self._rates: dict[CallerIdentity, ByteRate] = {}
        """Of identities with open calls: what one has left to pay for is forgiven with its last call."""
        self._is_stopping = False

    @property
    def threads(self) -> int:
        """How many gRPC needs."""
        return self._config.max_calls + _UNAUTHENTICATED_CALLS

    def begin(self, call: OpenCall) -> None:
        """Raises GatewayBusyError above a limit."""
        self.check_going()
        with self._lock:
            full = self._full(call.identity)
            if full is None:
                self._open.add(call)
                self._of[call.identity] += 1
                if self._config.bytes_per_s and call.identity not in self._rates:
                    self._rates[call.identity] = ByteRate(self._config.bytes_per_s)
        if full is not None:
            setting, problem = full
            call.tell_limit(setting)
            raise GatewayBusyError(problem)

    def _full(self, identity: CallerIdentity) -> tuple[str, str] | None:
        """The setting that allows no further call of it, and what that says to the caller."""
        config = self._config
        if len(self._open) >= config.max_calls:
            return "max_calls", f"{config.max_calls} calls are open, as many as it takes (--max-calls): try again later"
        most = config.max_calls_per_identity
        if self._of[identity] >= most:
            problem = f"{identity} has {most} calls open, as many as it may (--max-calls-per-identity): end some"
            return "max_calls_per_identity", problem
        return None

    def begin_tail(self, call: OpenCall) -> None:
        """The call is a tail. Raises GatewayBusyError above a limit."""
        most = self._config.max_tails_per_identity
        with self._lock:
            call.is_tail = self._tails_of[call.identity] < most
            if call.is_tail:
                self._tails_of[call.identity] += 1
        if not call.is_tail:
            call.tell_limit("max_tails_per_identity")
            problem = f"{call.identity} has {most} tails open, as many as it may (--max-tails-per-identity): end some"
            raise GatewayBusyError(problem)

    def end(self, call: OpenCall) -> None:
        with self._lock:
            if call not in self._open:
                return
            self._open.remove(call)
            _less(self._of, call.identity)
            if call.is_tail:
                _less(self._tails_of, call.identity)
            if call.identity not in self._of:
                self._rates.pop(call.identity, None)

    def stop(self) -> None:
        """Every call raises at its next look, and no other begins."""
        self._is_stopping = True

    def check_going(self) -> None:
        """Raises GatewayBusyError once the gateway stops."""
        if self._is_stopping:
            raise GatewayBusyError("it stops: call another one")

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def wait_s(self, identity: CallerIdentity, nbytes: int) -> float:
        """How long the identity is to wait until it may send or take more, behind these bytes."""
        with self._lock:
            rate = self._rates.get(identity)
            if rate is None:
                return 0.0
            now_ms = self.clock() * 1000
            rate.take(nbytes, now_ms)
            return max(0.0, (rate.due_ms(int(now_ms)) - now_ms) / 1000)

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.all())

    def all(self) -> list[OpenCall]:
        with self._lock:
            return list(self._open)


def _less(counts: Counter[CallerIdentity], identity: CallerIdentity) -> None:
    counts[identity] -= 1
    if counts[identity] <= 0:
        del counts[identity]
