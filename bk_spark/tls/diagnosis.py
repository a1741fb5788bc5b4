"""Says in one sentence why a TLS connection between a client and a server fails, and what to do.

It opens one more connection with Python's ``ssl``, and sends no data over it. It runs beside the event loop and is bounded in
time. With TLS 1.3 the client's handshake ends before the server has checked the client's certificate, so only the first read
shows that the server refused it.

Ref: RFC 8446, "Handshake Protocol".
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from bk_spark.host_port import HostPort
from bk_spark.tls.client_contexts import client_context
from bk_spark.tls.files import TlsFiles

STEP_S = 2.0
"""The timeout of each step: connect, handshake, first read. On a working network they take milliseconds."""

SPEAKS_TLS = "speaks TLS and this client does not: give tls_ca (tlsCa, --tls-ca), and tls_certificate with tls_key if it asks"
SPEAKS_NO_TLS = "speaks no TLS: start it with --tls-certificate and --tls-key, or leave out tls_ca (tlsCa, --tls-ca)"


@dataclass(frozen=True, slots=True)
class ServerKind:
    """What diagnoses call a server, and say of its settings and of the client's."""

    name: str
    speaks_tls: str
    speaks_no_tls: str
    takes_renewed: str
    named_by: str
    authorities: str
    hangs_up: bool = False
    """Whether one that speaks no TLS ends a connection that begins with it. Others answer something."""


BOOKIE = ServerKind(
    name="the bookie",
    speaks_tls=SPEAKS_TLS,
    speaks_no_tls=SPEAKS_NO_TLS,
    takes_renewed="it takes it without a restart",
    named_by="the bookie registers",
    authorities="the bookie's tls_ca",
)

ZOOKEEPER = ServerKind(
    name="the ZooKeeper server",
    speaks_tls="speaks TLS at this port and this client does not: end the metadata URI with ?tls=true, and give tls_ca "
    "(tlsCa, --tls-ca), and tls_certificate with tls_key if it asks",
    speaks_no_tls="speaks no TLS at this port: name its secureClientPort in the metadata URI, or leave out ?tls=true",
    hangs_up=True,
    takes_renewed="with client.certReload=true it takes it without a restart",
    named_by="the metadata URI names",
    authorities="ZooKeeper's trust store",
)

_EXPIRED, _NOT_YET_VALID, _NAME_MISMATCH, _ADDRESS_MISMATCH = 10, 9, 62, 64
"""OpenSSL's codes for problems of a certificate."""

_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's names for an answer that is not TLS."""


def diagnose(host: str, port: int, files: TlsFiles | None, server: ServerKind = BOOKIE) -> str | None:
    """What is wrong with TLS between this client and the server; None if nothing is, or if it cannot be found out now."""
    try:
        with socket.create_connection((host, port), timeout=STEP_S) as connection:
            problem = _without_tls(connection, server) if files is None else _with_tls(connection, host, files, server)
    except (OSError, ValueError):  # the server does not answer, or a file is being replaced
        return None
    return problem and f"{server.name} at {HostPort(host, port)} {problem}"


def _without_tls(connection: socket.socket, server: ServerKind) -> str | None:
    """A problem if the other side accepts a TLS handshake; its certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError:
        return None
    return server.speaks_tls


def _with_tls(connection: socket.socket, host: str, files: TlsFiles, server: ServerKind) -> str | None:
    context = client_context(files)
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            return _after_handshake(secured, files, server)
    except ssl.SSLError as problem:
        return in_handshake(problem, host, files, server)
    except ConnectionResetError:
        return server.speaks_no_tls if server.hangs_up else None


def in_handshake(problem: ssl.SSLError, host: str, files: TlsFiles, server: ServerKind = BOOKIE) -> str:
    """What the server at ``host`` did, after which the client's handshake failed."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _about_its_certificate(problem, host, files, server)
    if problem.reason in _NOT_TLS or (server.hangs_up and isinstance(problem, ssl.SSLEOFError)):
        return server.speaks_no_tls
    if "ALERT" in (problem.reason or ""):
        return after_handshake(files, server)
    return f"broke off the TLS handshake ({problem.reason})"


def _about_its_certificate(problem: ssl.SSLCertVerificationError, host: str, files: TlsFiles, server: ServerKind) -> str:
    if problem.verify_code == _EXPIRED:
        return f"shows a certificate that has expired: give it a new one, {server.takes_renewed}"
    if problem.verify_code == _NOT_YET_VALID:
        return "shows a certificate that is not valid yet: look at the clocks of both machines, or give it another one"
    if problem.verify_code in (_NAME_MISMATCH, _ADDRESS_MISMATCH):
        return f"shows a certificate that is not for '{host}': its subjectAltName must name the host that {server.named_by}"
    return (
        f"shows a certificate that no authority in {files.ca} signed ({problem.verify_message}): "
        "give the right tls_ca (tlsCa, --tls-ca)"
    )


def _after_handshake(secured: ssl.SSLSocket, files: TlsFiles, server: ServerKind) -> str | None:
    """A server that accepts the client sends data, or waits. One that refuses its certificate, or misses one, hangs up."""
    try:
        return None if secured.recv(1) else after_handshake(files, server)
    except TimeoutError:
        return None
    except (ssl.SSLError, ConnectionError):
        return after_handshake(files, server)


def after_handshake(files: TlsFiles, server: ServerKind = BOOKIE) -> str:
    """What a server does that ends the connection once it has looked for the client's certificate."""
    if not files.certificate:
        return (
            "takes only clients with a certificate, and none is given: "
            "give tls_certificate and tls_key (tlsCertificate, tlsKey; --tls-certificate, --tls-key)"
        )
    from bk_spark.tls.certificates import describe_own

    about = describe_own(Path(files.certificate).read_bytes())
    return (
        f"refuses this client's certificate {files.certificate} ({about}): "
        f"give one that is valid and that an authority in {server.authorities} signed (tlsCertificate, --tls-certificate)"
    )
