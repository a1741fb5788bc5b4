"""Opens a connection to an Apache bookie, of either version.

Each begins in version 3, for a bookie's server takes version 3 until the first frame of version 2. It is wrapped in TLS if the
client's settings name TLS files. With a credential the client authenticates by SASL, and the bookie must ask for that. Without
one the bookie is asked whether clients must authenticate, so that one that wants more than it gets says so once, and not in its
own way to each request. Nothing falls back to none.

An Apache bookie says nothing to a message of SASL that it refuses. So a question follows each that every bookie answers:
if that alone is answered, the message was refused. The question is for disk space: it asks for nothing that must be kept from
others, and Apache's bookies refuse it without a line in their log.

Ref: Apache BookKeeper's AuthHandler.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.sasl import Credential, Exchange, WrongMessageError
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.config import BOOKIE_AUTH_NAME
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.tls.client_contexts import ClientContexts
from bk_spark.tls.diagnosis import after_handshake, in_handshake
from bk_spark.wire.apache import version_3
from bk_spark.wire.messages import Status

Framed = TypeVar("Framed", bound=FramedConnection[Any])

STEP_S = 5.0
"""The timeout of each step: connect, handshake, an answer. A bookie that is there takes milliseconds."""

_OPTIONS = "tls_ca, tls_certificate and tls_key (tlsCa, tlsCertificate, tlsKey; --tls-ca, --tls-certificate, --tls-key)"
_NEEDS_MORE = f"asks its clients to authenticate: by SASL with {BOOKIE_AUTH_NAME}, or by certificates with {_OPTIONS}"
_ASKS_NOBODY = (
    "asks nobody to authenticate, so it may be anybody: set up SASL there (bookieAuthProviderFactoryClass), or leave out "
    + BOOKIE_AUTH_NAME
)
_NO_SASL = "asks its clients to authenticate, and not by SASL's DIGEST-MD5: Kerberos and other plugins are not supported"
_WRONG = (
    f"refuses the user or the password of {BOOKIE_AUTH_NAME}: both must be in its JAAS section, or file of users, and the user "
    "be one of its saslJaasClientAllowedIds, by default names with 'bookkeeper' in them"
)
_WITHOUT_TLS = "speaks no TLS: set up TLS in its configuration (tlsProviderFactoryClass), or leave out tls_ca (tlsCa, --tls-ca)"


async def open_version_3(address: BookieAddress, access: LoginAccess) -> Version3:
    """Raises ConnectionError that says what is wrong, or another OSError."""
    loop = asyncio.get_running_loop()
    access.check(address.place, loop.time())
    try:
        connecting = loop.create_connection(Version3, address.host, address.port)
        _, connection = await asyncio.wait_for(connecting, STEP_S)
        return await _begun(connection, address, access)
    except TimeoutError:
        raise ConnectionError(f"the bookie at {address.place} did not answer within {STEP_S:g} s") from None
    except _RefusedError as refused:
        problem = f"the bookie at {address.place} {refused}"
        if isinstance(refused, _LoginError):
            access.refused(address.place, problem, loop.time())
        raise ConnectionError(problem) from refused


async def _begun(connection: Version3, address: BookieAddress, access: LoginAccess) -> Version3:
    try:
        if access.contexts is not None:
            await _start_tls(connection, address, access.contexts)
        if access.credential is None:
            await _greet(connection, access.contexts)
        else:
            await _log_in(connection, access.contexts, access.credential)
    except BaseException:
        connection.close("it could not be used")
        raise
    return connection


async def open_framed(address: BookieAddress, access: LoginAccess, connection: Framed) -> Framed:
    """A connection that goes on with other frames than those of version 3. Raises as open_version_3 does."""
    begun = await open_version_3(address, access)
    transport = begun.transport
    if begun.ended is not None or transport.is_closing():  # the new protocol would not be told
        raise ConnectionError(begun.ended or "the bookie closed the connection")
    transport.set_protocol(connection)
    connection.connection_made(transport)
    return connection


class _RefusedError(Exception):
    """What the bookie did, as the rest of a sentence."""


class _LoginError(_RefusedError):
    """The credential led to nothing, and would again."""


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


@contextmanager
def _first_answer(connection: Version3, contexts: ClientContexts | None) -> Iterator[None]:
    """With TLS 1.3 the first answer, or its absence, shows whether the bookie takes the client's certificate."""
    try:
        yield
    except ConnectionError as problem:
        # A bookie that refuses a certificate may reset or close the connection, which then overtakes the word that says so.
        ended_by = connection.cause
        if contexts is not None and (ended_by is None or isinstance(ended_by, (ssl.SSLError, ConnectionResetError))):
            raise _RefusedError(after_handshake(contexts.files)) from problem
        raise


async def _greet(connection: Version3, contexts: ClientContexts | None) -> None:
    with _first_answer(connection, contexts):
        answer = await connection.ask(pb.AUTH, version_3.without_authentication(), STEP_S)
    if version_3.status_of(answer.status) is not Status.OK:
        raise _RefusedError(_NEEDS_MORE)


async def _log_in(connection: Version3, contexts: ClientContexts | None, credential: Credential) -> None:
    exchange = Exchange(credential)
    with _first_answer(connection, contexts):
        first = await _answered(connection, b"")
    if first is not None and first.authPluginName == version_3.WITHOUT_AUTHENTICATION:
        raise _LoginError(_ASKS_NOBODY)
    if first is None or first.authPluginName != version_3.SASL:
        raise _LoginError(_NO_SASL)
    try:
        last = await _answered(connection, exchange.respond(first.payload))
        if last is None:
            raise _LoginError(_WRONG)
        exchange.check(last.payload)
    except WrongMessageError as problem:
        raise _LoginError(str(problem)) from problem


async def _answered(connection: Version3, payload: bytes) -> pb.AuthMessage | None:
    """What the bookie says to a message of SASL; None if it refuses it, with an answer or without one."""
    saying = asyncio.ensure_future(connection.ask(pb.AUTH, version_3.authentication(payload), STEP_S))
    following = asyncio.ensure_future(connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), STEP_S))
    try:
        await asyncio.wait([following])
        if saying.done() and saying.exception() is None:
            answer = saying.result()
            return answer.authResponse if version_3.status_of(answer.status) is Status.OK else None
        await following
        return None
    finally:
        saying.cancel()
        following.cancel()
        await asyncio.gather(saying, following, return_exceptions=True)
