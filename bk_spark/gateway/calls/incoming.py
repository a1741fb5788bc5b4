"""The messages of one caller's stream, as they come.

A thread of its own takes them from gRPC, because gRPC waits for the next one without a limit. So the call can look up
meanwhile: whether the gateway stops, whether the caller may still go on, whether it has been silent for too long. One message
waits here while the one before is worked on; further ones wait in the connection, whose window is then full, and so at the
caller.

**The end of a stream means nothing.** A caller that dies may look as one that has finished: the end of its connection can come
as the end of the stream. Whoever needs to know that all has come must be told so by the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from bk_spark.calls.off_main_thread import in_thread
from bk_spark.errors import ConfigError
from bk_spark.gateway.calls.open_calls import LOOK_S, OpenCall
from bk_spark.gateway.calls.statuses import CallerGoneError, CallerSilentError
from bk_spark.gateway.flight.messages import FlightData, decode_data
from bk_spark.telemetry.metrics import GATEWAY_BYTES


@dataclass(frozen=True, slots=True)
class _Ended:
    """No more comes."""

    is_broken: bool


class IncomingMessages:
    """Takes the messages of ``requests``, gRPC's iterator. ``next`` and ``close`` are for one thread."""

    def __init__(self, call: OpenCall, requests: Iterator[bytes], silence_s: float) -> None:
        self._call = call
        self._requests = requests
        self._silence_s = silence_s
        self._waiting: SimpleQueue[bytes | _Ended] = SimpleQueue()
        self._wanted = threading.Semaphore(1)
        """Messages that the thread may take: one more than was asked for."""
        self._is_closed = False
        self._first: FlightData | None = None
        """Looked at, and not given yet."""
        in_thread(self._run)

    def first(self) -> FlightData:
        """The first message, which ``next`` gives again. Raises as it does."""
        self._first = self.next()
        if self._first is None:
            raise _nothing_sent()
        return self._first

    def next(self) -> FlightData | None:
        """The next message; None where the stream ends, whyever that is.

        Raises CallerGoneError; CallerSilentError where nothing comes for ``silence_s``; ConfigError for what is no message; and
        what ``OpenCall.look`` raises.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        found = self._found()
        if isinstance(found, _Ended):
            if found.is_broken or self._call.is_over:
                raise CallerGoneError
            return None
        GATEWAY_BYTES.labels("received").inc(len(found))
        self._call.pace(len(found))
        return decode_data(found)

    def close(self) -> None:
        """Nothing more is wanted. What gRPC waits for ends with the call."""
        self._is_closed = True
        self._requests = iter(())  # those of gRPC keep the call's stream
        self._wanted.release()

    def _found(self) -> bytes | _Ended:
        waited_s = 0.0
        while True:
            self._call.look()
            if self._is_closed:
                raise CallerGoneError
            try:
                found = self._waiting.get(timeout=LOOK_S)
            except Empty:
                waited_s += LOOK_S
                if waited_s >= self._silence_s:
                    self._call.tell_limit("silence_s")
                    raise CallerSilentError(self._silence_s) from None
            else:
                self._wanted.release()
                return found

    def _run(self) -> None:
        """The thread."""
        while True:
            self._wanted.acquire()
            if self._is_closed:
                return
            try:
                message = next(self._requests)
            except BaseException as ended:  # StopIteration; grpc.RpcError, where the call is over
                self._waiting.put(_Ended(is_broken=self._is_closed or not isinstance(ended, StopIteration)))
                return
            self._waiting.put(message)


def only_message(call: OpenCall, requests: Iterator[bytes]) -> bytes:
    """The only message of a call's request. Raises CallerGoneError, and ConfigError where the caller sent none."""
    with call.waiting_for_caller():
        try:
            return next(requests)
        except StopIteration:
            raise _nothing_sent() from None
        except Exception:  # grpc.RpcError
            raise CallerGoneError from None


def _nothing_sent() -> ConfigError:
    return ConfigError("the request", None, "send one message at least")
