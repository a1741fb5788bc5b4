"""Channels to bookies, with TLS if the client's settings name its files, and an explanation if TLS fails.

For most refusals gRPC only says that the socket was closed. After such a failure a thread connects to the bookie once more, in
a way that tells why (``tls/diagnosis.py``). The diagnosis is kept for a few seconds, for all requests that fail meanwhile.

All of this runs on the process's one background event loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.sasl import Credential
from bk_spark.config import ClientConfig
from bk_spark.host_port import HostPort
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.tls.client_contexts import ClientContexts
from bk_spark.tls.diagnosis import diagnose
from bk_spark.tls.files import TlsContent, TlsFiles, TlsSource
from bk_spark.tls.grpc_credentials import channel_credentials
from bk_spark.wire.messages import KEEPALIVE_MS, MAX_MESSAGE_BYTES

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.enable_http_proxy", 0),
)
"""A failed connection is replaced by a new channel. It must not inherit the back-off of the old one from the pool that channels
share by default, so that a bookie that came back is reached at once. A bookie that does not even answer the transport's pings
is given up, so that nothing waits for a machine that vanished. Bookies are never behind an HTTP proxy."""

HOLDS_S = 5.0
"""How long a diagnosis is kept: many requests fail at once, and an operator who repairs something waits no longer than this."""

_SIGNS = ("Socket closed", "reset by peer", "handshake", "SSL", "Verification", "verification")
"""What gRPC says when the other side was reached but the two did not understand each other."""


def bookie_stub(channel: grpc.aio.Channel) -> Any:
    """The service behind a channel. Adds take serialized requests, reads give serialized replies (wire/body.py)."""
    stub = BookieStub(channel)
    stub.Read = channel.unary_stream("/bk_spark.v1.Bookie/Read", request_serializer=pb.ReadRequest.SerializeToString)
    stub.Add = channel.stream_stream("/bk_spark.v1.Bookie/Add", response_deserializer=pb.AddReply.FromString)
    return stub


class Channels:
    """Opens the channels of one client."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConfigError if the TLS files cannot be used, or what the credential for Apache's bookies needs is missing."""
        files = TlsFiles.of(config)
        self._source = TlsSource(files) if files else None
        self.access = LoginAccess(ClientContexts(self._source) if self._source else None, Credential.of(config.bookie_auth))
        """For protocols other than gRPC."""
        self._diagnoses: dict[BookieAddress, tuple[float, asyncio.Task[str | None]]] = {}

    def content(self) -> TlsContent | None:
        """The TLS files for a channel opened now; the same object until the files change."""
        return self._source.content() if self._source else None

    def open(self, address: BookieAddress, content: TlsContent | None) -> grpc.aio.Channel:
        target = str(self._place(address))
        if content is None:
            return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(target, channel_credentials(content), options=CHANNEL_OPTIONS)

    def _place(self, address: BookieAddress) -> HostPort:
        """Where this client is served."""
        if self._source is not None or address.clear_port is None:
            return address.place
        return HostPort(address.host, address.clear_port)

    async def explain(self, details: str, address: BookieAddress | None) -> str | None:
        """Why the channel to ``address`` could not be opened, given gRPC's ``details``; None if TLS is not the reason."""
        if address is None or "failed to connect" not in details or not any(sign in details for sign in _SIGNS):
            return None
        return await asyncio.shield(self._diagnosis(address))

    def _diagnosis(self, address: BookieAddress) -> asyncio.Task[str | None]:
        """The bookie's last diagnosis if it is new enough, otherwise a new one. At most one for each bookie is under way."""
        loop = asyncio.get_running_loop()
        until, task = self._diagnoses.get(address, (0.0, None))
        if task is None or (task.done() and loop.time() > until):
            files = self._source.files if self._source else None
            place = self._place(address)
            task = loop.create_task(asyncio.to_thread(diagnose, place.host, place.port, files))
            self._diagnoses[address] = loop.time() + HOLDS_S, task
        return task
