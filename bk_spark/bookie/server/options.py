"""The options of a bookie's gRPC server: limits on its clients that hold before any of their messages is read.

Ref: docs/guide/limits.md.
"""

from __future__ import annotations

from bk_spark.config import KIB
from bk_spark.wire.messages import KEEPALIVE_MS, MAX_MESSAGE_BYTES

MAX_STREAMS = 256
"""Open calls of one connection; further calls wait in the client. A client has one for its adds and a few for each reader."""

MAX_METADATA_BYTES = 16 * KIB
"""Of the headers of one call. Clients of this package send a few hundred bytes."""

HANDSHAKE_MS = 10_000
"""A connection that has not set up HTTP/2, TLS included, by then is closed."""

IDLE_MS = 600_000
"""A connection without a call for this long is closed. Clients open another when they need one."""


def server_options(connections: int) -> tuple[tuple[str, int], ...]:
    """Options by gRPC's names."""
    return (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.keepalive_time_ms", 3 * KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    )
