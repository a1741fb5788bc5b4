"""Channels to bookies, with TLS where the client's settings name its files, and words for why one could not be opened.

gRPC says of most refusals only that the socket was closed. So after such a failure the bookie is asked once more in a way that
tells why (``diagnosis.py``), beside the event loop; what came out holds for a few seconds, for whoever fails meanwhile.

All of this runs on the one background event loop of the process.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import grpc
import grpc.aio

from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.tls.diagnosis import diagnose
from bk_spark.tls.files import TlsContent, TlsFiles, TlsSource, channel_credentials
from bk_spark.wire.messages import KEEPALIVE_MS, MAX_MESSAGE_BYTES

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.enable_http_proxy", 0),
)
"""A connection that failed is made anew with a new channel, which must not inherit the back-off of the old one from the
pool that channels share by default: a bookie that came back is reached at once. A bookie that does not even answer the
transport's pings is given up, so that nothing waits for a machine that vanished. Bookies are never behind an HTTP proxy."""

HOLDS_S = 5.0
"""How long a diagnosis holds: many requests fail at once, and an operator who mends something waits no longer."""

_SIGNS = ("Socket closed", "reset by peer", "handshake", "SSL", "Verification", "verification")
"""What gRPC says where the other side was reached and the two did not understand each other."""

_READ = "/bk_spark.v1.Bookie/Read"
_ADD = "/bk_spark.v1.Bookie/Add"

_Place: TypeAlias = tuple[str, int]


def bookie_stub(channel: grpc.aio.Channel) -> Any:
    """The service behind a channel. Adds take serialized requests, reads give serialized replies (body.py)."""
    stub = BookieStub(channel)
    stub.Read = channel.unary_stream(_READ, request_serializer=pb.ReadRequest.SerializeToString)
    stub.Add = channel.stream_stream(_ADD, response_deserializer=pb.AddReply.FromString)
    return stub


class Channels:
    """Opens the channels of one client."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConfigError where the TLS files cannot be used."""
        files = TlsFiles.of(config)
        self._source = TlsSource(files) if files else None
        self._diagnoses: dict[_Place, tuple[float, asyncio.Task[str | None]]] = {}

    def content(self) -> TlsContent | None:
        """What a channel that is opened now is made with; the same object until the files change."""
        return self._source.content() if self._source else None

    def open(self, address: BookieAddress, content: TlsContent | None) -> grpc.aio.Channel:
        target = f"{address.host}:{address.port}"
        if content is None:
            return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(target, channel_credentials(content), options=CHANNEL_OPTIONS)

    async def explain(self, details: str, address: BookieAddress | None) -> str | None:
        """Why a channel to ``address`` could not be opened, by what gRPC said; None where it is nothing about TLS."""
        if address is None or "failed to connect" not in details or not any(sign in details for sign in _SIGNS):
            return None
        return await asyncio.shield(self._diagnosis((address.host, address.port)))

    def _diagnosis(self, place: _Place) -> asyncio.Task[str | None]:
        """The latest one of this bookie if it is new enough. At most one for each is under way."""
        loop = asyncio.get_running_loop()
        until, task = self._diagnoses.get(place, (0.0, None))
        if task is None or (task.done() and loop.time() > until):
            files = self._source.files if self._source else None
            task = loop.create_task(asyncio.to_thread(diagnose, *place, files))
            self._diagnoses[place] = loop.time() + HOLDS_S, task
        return task
