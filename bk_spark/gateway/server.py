"""A gateway: gRPC's server with the calls of Flight, and what looks after them.

``threading`` and ``grpc``: gRPC has a thread for each open call.

Ref: DESIGN.md, "The gateway".
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import grpc

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import KIB
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.gateway.access import Access
from bk_spark.gateway.calls.call_watch import CallWatch
from bk_spark.gateway.calls.open_calls import GatewayCalls
from bk_spark.gateway.service import FlightService
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.host_port import HostPort
from bk_spark.process.open_files import most_connections
from bk_spark.tls.files import TlsSource
from bk_spark.tls.grpc_credentials import server_credentials

_MARGIN_BYTES: Final = 64 * KIB
"""Of a message, beside its batch."""

MAX_CONNECTIONS: Final = 4_096
"""Fewer if the process cannot open 512 files more: without a free file it could not reach the cluster."""

_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.max_metadata_size", 16 * KIB),
    ("grpc.absolute_max_metadata_size", 16 * KIB),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_send_message_length", -1),
)
"""As those of a bookie (docs/guide/limits.md): connections, calls of one connection, headers, handshakes, idle connections, and
callers whose machine vanished. What a gateway sends it has cut itself; a row is sent whole, however large."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a gateway listens, and where callers reach it."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one."""
    locations: tuple[str, ...] = ()
    """URIs that endpoints name, such as ``grpc+tls://gateways:8815``; empty: wherever the caller asked."""


class Gateway:
    """Listens from ``start`` to ``stop``. Also a context manager."""

    def __init__(
        self,
        client: BookKeeper,
        access: Access,
        config: GatewayConfig | None = None,
        address: GatewayAddress | None = None,
        tls: TlsSource | None = None,
    ) -> None:
        self._config = config or GatewayConfig()
        self._address = address or GatewayAddress()
        self._tls = tls
        self.calls: Final = GatewayCalls(self._config)
        self._service = FlightService(client, access, self._config, self.calls, self._address.locations)
        self._watch = CallWatch(self.calls, self._config.stall_s)
        self._client = client
        self._threads = ThreadPoolExecutor(self.calls.threads, thread_name_prefix="call")
        self._server: Any = None
        self.port = 0

    def start(self) -> None:
        """Raises ConfigError if it cannot listen at its address, or may not open as many files as it needs."""
        options = (
            *_OPTIONS,
            ("grpc.max_allowed_incoming_connections", most_connections(MAX_CONNECTIONS)),
            ("grpc.max_receive_message_length", self._config.max_batch_bytes + _MARGIN_BYTES),
        )
        self._server = grpc.server(
            self._threads, (self._service.handler(),), options=options, maximum_concurrent_rpcs=self.calls.threads
        )
        place = str(HostPort(self._address.host, self._address.port))
        try:
            if self._tls is None:
                self.port = int(self._server.add_insecure_port(place))
            else:
                self.port = int(self._server.add_secure_port(place, server_credentials(self._tls)))
        except RuntimeError:
            problem = "it cannot be taken: stop what listens there, or choose another host and port"
            raise ConfigError("the address to listen at", place, problem) from None
        self._server.start()
        self._watch.start()

    def stop(self) -> None:
        """Take no more calls. Those that are open end at their next look, and after ``stop_s`` in any case."""
        self.calls.stop()
        if self._server is not None:
            self._server.stop(self._config.stop_s).wait()
        self._watch.stop()
        self.calls.audit.close()
        self._threads.shutdown(wait=False)

    def why_not_ready(self) -> str:
        """Empty if it takes calls and its cluster answers. Waits for the metadata store."""
        if self.calls.is_stopping:
            return "it stops"
        try:
            self._client.list_bookies()
        except BookKeeperError as problem:
            return str(problem)
        return ""

    def __enter__(self) -> Gateway:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
