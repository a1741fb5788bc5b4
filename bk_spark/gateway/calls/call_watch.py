"""Looks after calls that wait for their callers: gRPC tells nobody, and would wait for ever.

A reader that stops holds its thread, one message, and what was read ahead for it. After ``stall_s`` its call is ended, and
gRPC forgets the message with it. Meanwhile it is named once in the log. A caller whose token was revoked loses its calls also
while it takes nothing.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from grpc import StatusCode

from bk_spark.calls.off_main_thread import in_thread
from bk_spark.errors import BookKeeperError
from bk_spark.gateway.calls.open_calls import LOOK_S, GatewayCalls, OpenCall
from bk_spark.telemetry.metrics import GATEWAY_STALLED

TOLD_SHARE = 0.2
"""Of ``stall_s``: after so long a reader that stands still is named in the log."""

logger = logging.getLogger(__name__)


class CallWatch:
    """One thread for all calls."""

    def __init__(self, calls: GatewayCalls, stall_s: float) -> None:
        self._calls = calls
        self._stall_s = stall_s
        self._stopped = threading.Event()
        self._told: set[OpenCall] = set()

    def start(self) -> None:
        in_thread(self._run)

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> None:
        """Once over all calls."""
        now_s = self._calls.clock()
        waiting = {call: now_s - since for call in self._calls.all() if (since := call.waits_since) is not None}
        self._told &= waiting.keys()
        for call, waited_s in waiting.items():
            if waited_s >= self._stall_s:
                if not call.ended_by_us:
                    call.tell_limit("stall_s")
                _end(call, f"its caller took nothing for {waited_s:.0f} s")
            elif waited_s >= LOOK_S:
                self._tell(call, waited_s)
                _end_if_refused(call)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self.look()
                self._calls.audit.tick()
            except Exception:
                logger.exception("the calls that are open could not be looked after")

    def _tell(self, call: OpenCall, waited_s: float) -> None:
        if waited_s >= TOLD_SHARE * self._stall_s and call not in self._told:
            self._told.add(call)
            logger.warning(
                "%s of %s from %s on log '%s' has stood still for %.0f s: it ends after %g s",
                *(call.method, call.identity, call.peer, call.log, waited_s, self._stall_s),
            )


def _end_if_refused(call: OpenCall) -> None:
    try:
        call.look()
    except BookKeeperError as problem:
        _end(call, str(problem))


def _end(call: OpenCall, why: str) -> None:
    if not call.ended_by_us:
        call.ended_by_us = why
        GATEWAY_STALLED.inc()
        logger.warning("%s of %s from %s on log '%s' was ended: %s", call.method, call.identity, call.peer, call.log, why)
        if (context := call.context) is not None:
            end_call(context, f"the gateway ended this call: {why}")


def end_call(context: Any, sentence: str) -> None:
    """End a call from another thread than its own: what gRPC holds of it is freed, and the caller learns why.

    gRPC's public ``cancel`` says CANCELLED, which pyarrow takes for Ctrl-C: its ``read_all`` raises KeyboardInterrupt.
    """
    context._rpc_event.call.cancel(StatusCode.ABORTED.value[0], sentence)
