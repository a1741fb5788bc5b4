"""One connection of an Apache client: takes the stream of bytes apart, hands its frames on in order, and sends answers.

While a connection waits for something (for room in the sync queue, for its client to take answers, for the metadata store) it
takes no further frame and stops reading, so that what its client sends next stays in the socket.

Ref: Apache BookKeeper's BookieNettyServer; docs/guide/limits.md.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any, Protocol

from bk_spark.bookie.server.apache.steps import Steps
from bk_spark.bookie.server.apache.turns import Turns
from bk_spark.errors import BookKeeperError
from bk_spark.host_port import HostPort
from bk_spark.telemetry.audit_lines import Who
from bk_spark.wire.apache.version_2_server import frame_end
from bk_spark.wire.messages import MAX_MESSAGE_BYTES

UNTAKEN_BYTES = 256 * 1024
"""With more bytes of answers that its client has not taken, a connection takes no further requests."""

MOST_OWED = 10_000
"""Entries of adds without an answer. Apache's clients have 5,000 under way by default."""

TURN_S = 0.002
"""Then other connections have their turn. What comes at once may be thousands of adds, each of another ledger."""

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A client whose machine vanished is noticed after a minute."""

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """What a connection does with its frames, and whom it tells of its life."""

    def begun(self, connection: Connection) -> bool:
        """Whether the connection may stay."""

    def take(self, connection: Connection, data: memoryview, at: int, end: int) -> int:
        """Take the frame from ``at`` to ``end``, with its size in front, and perhaps some of those behind it.

        Returns where the next frame begins. Raises BookKeeperError for what ends the connection.
        """

    def rest(self, connection: Connection) -> None:
        """No further frame is complete for now: hand on what was gathered. Raises as ``take``."""

    def filled(self, connection: Connection, *, is_full: bool) -> None:
        """Its client must take answers first, or has taken them."""

    def ended(self, connection: Connection) -> None:
        """The connection is closed."""


class Connection(asyncio.Protocol):
    """Lives on the event loop."""

    def __init__(self, handler: Handler, steps: Steps, turns: Turns) -> None:
        """``steps`` and ``turns`` are those of all connections."""
        self._handler = handler
        self._steps = steps
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_between_transports = False
        self._out: list[bytes] = []
        self._holds = 0
        """How many steps must end before the connection takes the next frame."""
        self._goes_on = False
        """Whether it has asked for its turn to look at its frames."""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        """Its steps under way."""
        self._place = HostPort("", 0)
        self.user = ""
        """Who its client is by SASL; empty while that is not shown."""
        self.most_frame_bytes = MAX_MESSAGE_BYTES
        """The largest frame that is taken; a larger one ends the connection."""
        self.owed = 0
        """Entries of adds that are not answered yet."""
        self.heard_s: float | None = None
        """When a frame was complete last."""
        self.made_s = self._loop.time()
        self.incomplete_since_s: float | None = None
        """Since when the rest of a request is awaited."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.goes_over(transport)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self._place = HostPort(host, port)
        keep_alive(transport.get_extra_info("socket"))
        if not self._handler.begun(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._turns.is_crowded:
            self._go_on()
            self._read_or_pause()
        else:
            self._take()

    def connection_lost(self, error: Exception | None) -> None:
        self._holds += 1
        self._buffer.clear()
        self._out.clear()
        self._may_write.set()
        for task in list(self._tasks):
            task.cancel()
        self._handler.ended(self)

    def pause_writing(self) -> None:
        self._may_write.clear()
        self._handler.filled(self, is_full=True)
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._may_write.set()
        self._handler.filled(self, is_full=False)
        self._go_on()

    # What handlers use.

    @property
    def peer(self) -> str:
        """The client's address and port."""
        return str(self._place)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether its client must take answers first."""
        return not self._may_write.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self.owes_answers or self._buffer or self.untaken_bytes)

    @property
    def owes_answers(self) -> bool:
        """Whether answers will be sent later to what was taken."""
        return bool(self._tasks or self.owed)

    @property
    def active_s(self) -> float:
        """When it last took a frame, or began."""
        return self.made_s if self.heard_s is None else self.heard_s

    @property
    def has_more(self) -> bool:
        """Whether something came behind the last frame that was taken."""
        return bool(self._buffer)

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that wait in this process for the client to take them."""
        return self.transport.get_write_buffer_size()

    def leaves_transport(self) -> asyncio.Transport:
        """TLS begins: asyncio takes the transport, which must not be paused from here, for the handshake reads from it."""
        self._is_between_transports = True
        return self.transport

    def goes_over(self, transport: asyncio.Transport) -> None:
        """The connection goes on over this transport."""
        self._transport = transport
        self._is_between_transports = False
        transport.set_write_buffer_limits(high=UNTAKEN_BYTES)

    def send(self, answer: bytes) -> None:
        """The answers of one turn of the loop go out together."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(answer)

    def owe(self, entries: int) -> None:
        """Note that answers for so many entries are owed; with a negative number, that they were given."""
        self.owed += entries
        if entries < 0 and self.owed < MOST_OWED <= self.owed - entries:
            self._go_on()

    def hold(self, step: Coroutine[Any, Any, None]) -> None:
        """Take no further frame until ``step`` has ended."""
        self._holds += 1

        async def held() -> None:
            try:
                await step
            finally:
                self._holds -= 1
                self._go_on()

        self.run(held())

    def run(self, step: Coroutine[Any, Any, None]) -> None:
        """Run ``step`` beside further frames. It is cancelled with the connection."""
        task = self._loop.create_task(self._guarded(step))
        self._tasks.add(task)
        self._steps.count += 1
        task.add_done_callback(self._ended)

    def who(self) -> Who:
        """Its client, for the audit log."""
        shown = self.transport.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for name, value in part if name == "commonName"]
        names += [value for _, value in shown.get("subjectAltName", ())]
        return Who(self._place.host, str(self._place.port), next(filter(None, names), ""), self.user)

    async def taken(self) -> None:
        """Wait until the client has taken nearly all answers."""
        await self._may_write.wait()

    def finish(self, problem: str) -> None:
        """Take nothing more, and close the connection once its client has the answers."""
        if self.is_open:
            logger.info("the connection of %s is closed: %s", self.peer, problem)
            self._flush()
            self.transport.close()

    def end(self, problem: str) -> None:
        """Close the connection at once."""
        if self.is_open:
            logger.info("the connection of %s is closed: %s", self.peer, problem)
            self.transport.abort()

    # The rest.

    @property
    def _is_held(self) -> bool:
        is_busy = self._holds > 0 or self.is_full or self.owed >= MOST_OWED
        return is_busy or not self._steps.may_begin(len(self._tasks)) or not self.is_open

    def _take(self) -> None:
        """Hand on the frames that are complete, unless the connection waits."""
        at, until_s = 0, self._loop.time() + TURN_S
        try:
            with memoryview(self._buffer) as data:
                while not self._is_held and (end := frame_end(data, at, self.most_frame_bytes)) is not None:
                    at = self._handler.take(self, data, at, end)
                    self.heard_s = self._loop.time()
                    if self.heard_s > until_s:
                        self._go_on()
                        break
                self._handler.rest(self)
        except BookKeeperError as problem:
            self.end(str(problem))
        del self._buffer[:at]
        if not self._buffer or self._is_held:
            self.incomplete_since_s = None
        elif at or self.incomplete_since_s is None:
            self.incomplete_since_s = self._loop.time()
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        if not self.is_open or self._is_between_transports:
            return
        if self._is_held or self._goes_on:
            self.transport.pause_reading()
            if not self._steps.may_begin(len(self._tasks)):
                self._steps.wait(self._go_on)
        else:
            self.transport.resume_reading()

    def _go_on(self) -> None:
        """What held the connection may be over."""
        if self.is_open and not self._is_held and not self._goes_on:
            self._goes_on = True
            self._turns.ask(self._take_again)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._steps.ended()
        self._go_on()

    def _take_again(self) -> None:
        self._goes_on = False
        self._take()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self.is_open:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    async def _guarded(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except (BookKeeperError, OSError) as problem:
            self.end(str(problem) or type(problem).__name__)
        except Exception:
            logger.exception("a request of %s failed by an error of this program: report it", self.peer)
            self.end("a request failed")


def keep_alive(sock: socket.socket | None) -> None:
    """Have the system notice when the other machine vanishes."""
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
