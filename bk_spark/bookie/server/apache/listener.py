"""A bookie's port for Apache BookKeeper's clients.

A connection takes version 3 of the protocol until the first frame that is none. From then on it takes version 2 for good, as at
Apache's own server. With TLS files a connection must begin with START_TLS; requests before it are refused, unless clients in
clear are allowed. With a file of users a connection must authenticate; requests before that are refused.

Apache's clients ask for TLS and begin to authenticate at once, in either order, and go on once they are answered. So the first
message of SASL that comes in clear around START_TLS is answered over TLS. START_TLS itself waits a moment for it, or it would
come into the handshake, as it does at Apache's bookies. Whoever else puts it there learns and gains nothing.

What clients can make the bookie hold is bounded as at the other port (open_calls.py): connections, requests that do not become
complete, answers that are not taken, resident memory.

Ref: Apache BookKeeper's BookieNettyServer and BookieRequestProcessor; docs/guide/limits.md.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass

from bk_spark.bookie.server.apache.adds import Adds
from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.apache.logins import Frame, Login
from bk_spark.bookie.server.apache.reads import REPLY_BYTES, ClientReads, Readers
from bk_spark.bookie.server.apache.steps import Steps
from bk_spark.bookie.server.apache.turns import Turns
from bk_spark.bookie.server.apache.users import ApacheUsers
from bk_spark.bookie.server.apache.version_2 import Version2Requests
from bk_spark.bookie.server.apache.version_3 import Version3Requests
from bk_spark.bookie.server.audit import CLEAR, CONNECTIONS, LOGINS, SLOW_LOGIN, UNKNOWN
from bk_spark.bookie.server.open_calls import ENDED_SHARE, LOOK_S, REQUEST_TIMEOUT_S, STALLED_S
from bk_spark.bookie.server.requests import Requests
from bk_spark.bookie.server.waiting_adds import WaitingAdds
from bk_spark.config import KIB
from bk_spark.errors import ConfigError
from bk_spark.host_port import HostPort, why_not_bound
from bk_spark.process.memory import give_back, resident_bytes
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.telemetry.audit_lines import Who
from bk_spark.tls.server_contexts import ServerContexts
from bk_spark.wire.apache import version_2_server, version_3_server
from bk_spark.wire.apache.version_2 import SIZE_BYTES
from bk_spark.wire.apache.version_2_server import Authentication
from bk_spark.wire.apache.version_3 import SASL
from bk_spark.wire.apache.version_3_server import AddRuns
from bk_spark.wire.frames import is_frame
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, Status

IDLE_S = 600.0
"""So long a connection must have been idle before it makes room for another one. Otherwise it stays: Apache's clients lose what
they send at the moment at which a bookie closes their connection."""

HANDSHAKE_S = 10.0
"""A live client takes milliseconds for TLS."""

LOGIN_S = 10.0
"""A connection that has not authenticated by then is closed. A live client takes milliseconds, and TLS before it as long."""

EARLY_S = 0.1
"""So long START_TLS waits for the message that Apache's clients send right behind it. Others wait in vain, and once."""

STRANGERS_SHARE = 4
"""One in so many connections may be one that has not authenticated; then the oldest of those gives way to the next one."""

STRANGERS_FRAME_BYTES = 64 * KIB
"""The largest frame of a client that has not authenticated. Its messages of AUTH have some hundred bytes."""

_BEHIND = "it sends more behind START_TLS before TLS has begun"

logger = logging.getLogger(__name__)


class _Client:
    """What is kept of a connection besides the connection itself."""

    def __init__(self, connection: Connection, readers: Readers, login: Login | None, *, is_trusted: bool) -> None:
        self.connection = connection
        self.reads = ClientReads(connection, readers)
        self.runs = AddRuns()
        self.is_version_2 = False
        self.is_trusted = is_trusted
        """Whether it may be served, or authenticate; with TLS files only behind the handshake, unless clients in clear are
        allowed."""
        self.login = login
        """None: it need not authenticate, or has done so."""
        self.is_served = is_trusted and login is None
        """Whether its requests are taken."""
        self.early: pb.Request | None = None
        """The message of AUTH that waits for TLS."""
        self.begins_tls: pb.Header | None = None
        """That of START_TLS, which waits for such a message."""
        self.is_encrypted = False
        self.known_as: Who | None = None
        """Who it is, as far as it has shown that; None: to be looked up."""
        self._untaken_bytes = 0
        """Of answers that waited for the client at the last look."""
        self._untaken_since_s = connection.made_s
        """Since when it has taken none of them."""

    def who(self) -> Who:
        """To be asked of a client that is served: it may still begin TLS, and shows nothing else any more."""
        if self.known_as is None:
            self.known_as = self.connection.who()
        return self.known_as

    def stands_still_s(self, now_s: float) -> float:
        """How long the bookie has waited for the client: for its first request, for the rest of one, or to take answers.

        To be called at each look.
        """
        connection = self.connection
        untaken = connection.untaken_bytes
        if not untaken or untaken < self._untaken_bytes:
            self._untaken_since_s = now_s
        self._untaken_bytes = untaken
        begins_s = connection.made_s if connection.heard_s is None else now_s
        incomplete_s = now_s if connection.incomplete_since_s is None else connection.incomplete_since_s
        return now_s - min(begins_s, incomplete_s, self._untaken_since_s)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of what clients can make the bookie hold."""

    connections: int
    memory_bytes: int
    """Resident memory of the process."""
    waiting_adds: WaitingAdds
    """Those of both ports."""
    frame_bytes: int
    """The largest frame that clients take."""


@dataclass(frozen=True, slots=True)
class Security:
    """How clients are to connect."""

    contexts: ServerContexts | None
    """None: nothing is encrypted."""
    clear_clients: bool
    """Whether clients that do not ask for TLS are served all the same."""
    users: ApacheUsers | None = None
    """None: nobody is asked to authenticate."""

    @property
    def trusts_all(self) -> bool:
        return self.contexts is None or self.clear_clients


class ApacheListener:
    """Lives on the event loop; the handler of its connections."""

    def __init__(self, requests: Requests, bounds: Bounds, security: Security) -> None:
        self._audit = requests.audit
        self._members = requests.members
        self._readers = Readers(requests, bounds.frame_bytes)
        self._adds = Adds(requests, bounds.waiting_adds, bounds.frame_bytes)
        self._steps, self._turns = Steps(), Turns()
        self._version_2 = Version2Requests(self._adds)
        self._version_3 = Version3Requests(self._adds, self._readers)
        self._security = security
        self._strangers: dict[Connection, None] = {}
        """Connections that have not authenticated, the oldest first."""
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._clients: dict[Connection, _Client] = {}
        self._begun = asyncio.Event()
        """Set when a connection begins."""
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._clients)

    async def start(self, host: str, port: int) -> int:
        """Serve. Returns the port. Raises ConfigError if nothing can listen there."""
        try:
            self._server = await self._loop.create_server(self._connection, host, port, backlog=1024)
        except OSError as problem:
            remedy = "stop what listens there, or choose another apache_port"
            address = str(HostPort(host, port))
            text = f"it cannot be taken ({why_not_bound(problem)}): {remedy}"
            raise ConfigError("the address for Apache's clients", address, text) from problem
        self._watching = self._loop.create_task(self._watch())
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def stop(self) -> None:
        """Take no further request, and close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._clients):
            connection.transport.close()

    def _connection(self) -> Connection:
        return Connection(self, self._steps, self._turns)

    # The handler of a connection.

    def begun(self, connection: Connection) -> bool:
        if len(self._clients) >= self._bounds.connections and not self._ends_idle():
            self._audit.refused(CONNECTIONS, connection.who())
            return False
        users = self._security.users
        login = Login(connection, users, self._audit) if users is not None else None
        self._clients[connection] = _Client(connection, self._readers, login, is_trusted=self._security.trusts_all)
        if login is not None:
            self._greet_stranger(connection)
        self._begun.set()
        return True

    def filled(self, connection: Connection, *, is_full: bool) -> None:
        if is_full:
            self._readers.full.add(connection)
        else:
            self._readers.taken(connection)

    def ended(self, connection: Connection) -> None:
        self._clients.pop(connection, None)
        self._strangers.pop(connection, None)
        self._readers.taken(connection)

    def take(self, connection: Connection, data: memoryview, at: int, end: int) -> int:
        client = self._clients[connection]
        is_stranger = client.is_served and not self._members.have(client.who())
        if client.is_served and is_frame(data, at, end):
            self._adds.take_frame(connection, data, at, end, is_stranger=is_stranger)
            return end
        if client.begins_tls is not None:
            self._take_early(client, version_3_server.unpack(data[at + SIZE_BYTES : end]))
            return end
        if not client.is_version_2:
            request = version_3_server.unpack(data[at + SIZE_BYTES : end])
            if request is not None:
                self._take_version_3(client, request, is_stranger=is_stranger)
                return end
            client.is_version_2 = True
            self.rest(connection)
        request_2, end = version_2_server.take(data, at, end)
        if is_stranger:
            self._refuse_stranger(client, version_2_server.refusal(request_2, Status.UNAUTHORIZED))
        elif client.is_served:
            self._version_2.take(connection, client.reads, request_2)
        elif isinstance(request_2, Authentication) and client.is_trusted and client.login is not None:
            self._authenticate(client, client.login, request_2.unpacked(), _authentication_2)
        else:
            self._refuse(client, version_2_server.refusal(request_2, Status.UNAUTHORIZED))
        return end

    def rest(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None:
            self._version_3.gathered(connection, client.runs)

    def _take_version_3(self, client: _Client, request: pb.Request, *, is_stranger: bool) -> None:
        connection, header = client.connection, request.header
        if header.operation == pb.START_TLS:
            self._begin_tls(client, header)
        elif is_stranger and header.operation != pb.AUTH:
            self._refuse_stranger(client, version_3_server.pack(header, Status.UNAUTHORIZED))
        elif client.is_served:
            self._version_3.take(connection, client.reads, client.runs, request)
        elif header.operation == pb.AUTH and request.HasField("authRequest") and client.login is not None:
            self._authenticate_3(client, client.login, request)
        elif header.operation == pb.GET_BOOKIE_INFO and client.is_trusted:  # clients of this package end a message so
            connection.send(version_3_server.pack(header, Status.UNAUTHORIZED))
        else:
            self._refuse(client, version_3_server.pack(header, Status.UNAUTHORIZED))

    def _refuse_stranger(self, client: _Client, answer: bytes) -> None:
        """No request of this port has a key for reads, so nothing is left that a stranger may do."""
        self._audit.refused_request(Status.UNAUTHORIZED, client.connection)
        client.connection.send(answer)

    def _refuse(self, client: _Client, answer: bytes) -> None:
        self._audit.refused(UNKNOWN if client.is_trusted else CLEAR, client.connection.who())
        client.connection.send(answer)

    # Authentication.

    def _greet_stranger(self, connection: Connection) -> None:
        """Watch a connection until it has authenticated."""
        if len(self._strangers) >= max(1, self._bounds.connections // STRANGERS_SHARE):
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self._audit.refused(LOGINS, oldest.who())
            oldest.end(LOGINS)
        self._strangers[connection] = None
        connection.most_frame_bytes = STRANGERS_FRAME_BYTES

    def _authenticate_3(self, client: _Client, login: Login, request: pb.Request) -> None:
        if client.is_trusted:
            header = request.header
            self._authenticate(client, login, request.authRequest, lambda *answer: version_3_server.pack(header, *answer))
        elif client.early is None and request.authRequest.authPluginName == SASL:
            client.early = request
        else:
            self._refuse(client, version_3_server.pack(request.header, Status.UNAUTHORIZED))

    def _authenticate(self, client: _Client, login: Login, message: pb.AuthMessage, frame: Frame) -> None:
        connection = client.connection
        login.take(message, frame)
        if login.user:
            connection.user, connection.most_frame_bytes = login.user, MAX_MESSAGE_BYTES
            client.login, client.is_served = None, True
            self._strangers.pop(connection, None)

    # TLS.

    def _begin_tls(self, client: _Client, header: pb.Header) -> None:
        contexts = self._security.contexts
        self.rest(client.connection)
        # No answer in clear may come into the handshake.
        if contexts is None or client.is_encrypted or client.connection.owes_answers:
            client.connection.send(version_3_server.pack(header, Status.BAD_REQUEST))
            return
        client.begins_tls = header
        if client.login is None or client.early is not None:
            self._go_to_tls(client)
        else:
            self._loop.call_later(EARLY_S, self._go_to_tls, client)

    def _take_early(self, client: _Client, request: pb.Request | None) -> None:
        """Nothing but a first message of SASL may come before the answer to START_TLS."""
        if request is None or request.header.operation != pb.AUTH or request.authRequest.authPluginName != SASL:
            client.connection.end(_BEHIND)
        else:
            client.early = request
            self._go_to_tls(client)

    def _go_to_tls(self, client: _Client) -> None:
        header, client.begins_tls = client.begins_tls, None
        contexts = self._security.contexts
        if header is not None and contexts is not None and client.connection.is_open:
            client.connection.hold(self._start_tls(client, header, contexts))

    async def _start_tls(self, client: _Client, header: pb.Header, contexts: ServerContexts) -> None:
        """Raises OSError if the handshake fails: the connection is closed then."""
        connection = client.connection
        if connection.has_more:  # it came in clear, perhaps from somebody else, and must not be taken for secured
            connection.end(_BEHIND)
            return
        connection.transport.write(version_3_server.pack(header, Status.OK, pb.StartTls()))
        context = contexts.current()
        clear = connection.leaves_transport()
        try:
            wrapped = await self._loop.start_tls(
                clear, connection, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except ssl.SSLError as problem:
            self._audit.refused(f"the TLS handshake failed: {problem.reason}", connection.who())
            raise
        if wrapped is not None:
            connection.goes_over(wrapped)
            client.is_trusted = client.is_encrypted = True
            client.known_as = None
            client.is_served = client.login is None
            if client.early is not None and client.login is not None:
                self._authenticate_3(client, client.login, client.early)

    # Limits.

    async def _watch(self) -> None:
        """Look at the connections while there are any."""
        while True:
            await self._begun.wait()
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except OSError as problem:
                logger.warning("the connections of Apache's clients could not be looked after: %s", problem)

    async def _look(self) -> None:
        if not self._clients:
            self._begun.clear()
        now_s = self._loop.time()
        standing = [(client.stands_still_s(now_s), client) for client in self._clients.values()]
        standing.sort(key=lambda one: one[0], reverse=True)
        for connection in [one for one in self._strangers if now_s - one.made_s >= LOGIN_S]:
            self._audit.refused(SLOW_LOGIN, connection.who())
            connection.end(SLOW_LOGIN)
        for stood_s, client in standing:
            if stood_s >= REQUEST_TIMEOUT_S:
                client.connection.end(f"it stood still for {REQUEST_TIMEOUT_S:g} s")
        if self._readers.untaken_bytes > REPLY_BYTES:
            self._end_some([one for one in standing if one[1].connection.is_full], STALLED_S, "answers were not taken")
        if resident_bytes() > self._bounds.memory_bytes:
            self._end_some(standing, LOOK_S, "memory is above memory_limit_bytes")
            await self._loop.run_in_executor(None, give_back)

    def _ends_idle(self) -> bool:
        """Close the connection that has been idle for longest, to make room for another one. False if none was for IDLE_S."""
        idle = (client.connection for client in self._clients.values() if client.connection.is_idle)
        longest = min(idle, key=lambda connection: connection.active_s, default=None)
        if longest is None or self._loop.time() - longest.active_s < IDLE_S:
            return False
        longest.end("it was idle, and others want to connect")
        del self._clients[longest]
        self._strangers.pop(longest, None)
        return True

    def _end_some(self, standing: list[tuple[float, _Client]], least_s: float, problem: str) -> None:
        """Close a share of the connections that have stood still, those first that have for longest."""
        meant = [client for stood_s, client in standing if stood_s >= least_s]
        for client in meant[: int(len(meant) * ENDED_SHARE) + 1]:
            client.connection.end(problem)


def _authentication_2(status: Status, message: pb.AuthMessage | None) -> bytes | None:
    """Version 2 has no frame that refuses an authentication."""
    return version_2_server.pack_authentication(message.SerializeToString()) if message is not None else None
