"""Opens a connection to an Apache bookie, of either version.

Each begins in version 3, for a bookie's server takes version 3 until the first frame of version 2. It is wrapped in TLS if the
client's settings name TLS files; nothing falls back to none. Then the bookie is asked whether clients must authenticate, so
that one that wants SASL says so once, and not in its own way to each request.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, TypeVar

from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.tls.client_contexts import ClientContexts
from bk_spark.tls.diagnosis import after_handshake, in_handshake
from bk_spark.wire.apache import version_3
from bk_spark.wire.messages import Status

Framed = TypeVar("Framed", bound=FramedConnection[Any])

STEP_S = 5.0
"""The timeout of each step: connect, handshake, an answer. A bookie that is there takes milliseconds."""

_NEEDS_MORE = "asks its clients to authenticate. SASL is not supported; if it asks for certificates, give "
_OPTIONS = "tls_ca, tls_certificate and tls_key (tlsCa, tlsCertificate, tlsKey; --tls-ca, --tls-certificate, --tls-key)"
_WITHOUT_TLS = "speaks no TLS: set up TLS in its configuration (tlsProviderFactoryClass), or leave out tls_ca (tlsCa, --tls-ca)"


async def open_version_3(address: BookieAddress, contexts: ClientContexts | None) -> Version3:
    """Raises ConnectionError that says what is wrong, or another OSError."""
    try:
        connecting = asyncio.get_running_loop().create_connection(Version3, address.host, address.port)
        _, connection = await asyncio.wait_for(connecting, STEP_S)
        return await _begun(connection, address, contexts)
    except TimeoutError:
        raise ConnectionError(f"the bookie at {address.place} did not answer within {STEP_S:g} s") from None
    except _RefusedError as refused:
        raise ConnectionError(f"the bookie at {address.place} {refused}") from refused


async def _begun(connection: Version3, address: BookieAddress, contexts: ClientContexts | None) -> Version3:
    try:
        if contexts is not None:
            await _start_tls(connection, address, contexts)
        await _greet(connection, contexts)
    except BaseException:
        connection.close("it could not be used")
        raise
    return connection


async def open_framed(address: BookieAddress, contexts: ClientContexts | None, connection: Framed) -> Framed:
    """A connection that goes on with other frames than those of version 3. Raises as open_version_3 does."""
    begun = await open_version_3(address, contexts)
    transport = begun.transport
    if begun.ended is not None or transport.is_closing():  # the new protocol would not be told
        raise ConnectionError(begun.ended or "the bookie closed the connection")
    transport.set_protocol(connection)
    connection.connection_made(transport)
    return connection


class _RefusedError(Exception):
    """What the bookie did, as the rest of a sentence."""


async def _start_tls(connection: Version3, address: BookieAddress, contexts: ClientContexts) -> None:
    answer = await connection.ask(pb.START_TLS, pb.StartTls(), STEP_S)
    if version_3.status_of(answer.status) is not Status.OK:
        raise _RefusedError(_WITHOUT_TLS)
    if connection.has_begun_frame:
        raise _RefusedError("sent more than an answer before TLS began, which nothing protects")
    loop, context = asyncio.get_running_loop(), contexts.current()
    try:
        secured = await loop.start_tls(
            connection.transport, connection, context, server_hostname=address.host, ssl_handshake_timeout=STEP_S
        )
    except ssl.SSLError as problem:
        raise _RefusedError(in_handshake(problem, address.host, contexts.files)) from problem
    if secured is None:
        raise ConnectionError(connection.ended or "it ended in the TLS handshake")
    connection.connection_made(secured)


async def _greet(connection: Version3, contexts: ClientContexts | None) -> None:
    """With TLS 1.3 the first answer, or its absence, shows whether the bookie takes the client's certificate."""
    try:
        answer = await connection.ask(pb.AUTH, version_3.without_authentication(), STEP_S)
    except ConnectionError as problem:
        # A bookie that refuses a certificate may reset or close the connection, which then overtakes the word that says so.
        ended_by = connection.cause
        if contexts is not None and (ended_by is None or isinstance(ended_by, (ssl.SSLError, ConnectionResetError))):
            raise _RefusedError(after_handshake(contexts.files)) from problem
        raise
    if version_3.status_of(answer.status) is not Status.OK:
        raise _RefusedError(_NEEDS_MORE + _OPTIONS)
