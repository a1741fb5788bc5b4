"""A small HTTP server for metrics, health and the dashboard: GET and HEAD of exact paths, one request a connection.

A client cannot use up the process: WORKERS threads answer, MAX_WAITING connections wait for one of them, and further ones are
closed at once; a request has at most HEAD_BYTES; a client has CONNECTION_S to send it and as long again to take the answer,
however it spreads its bytes. Request bodies are not read. There is no authentication: listen only where everybody who can
connect may see what the routes return.

Ref: RFC 9110 and RFC 9112; docs/metrics.md.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.host_port import HostPort, parse_host, why_not_bound
from bk_spark.telemetry.served_hosts import ServedHosts

WORKERS = 8
"""Requests answered at a time: a scraper, a probe and a few people's pages."""

MAX_WAITING = 64
"""Connections that may wait for a thread: a page opens six at once."""

CONNECTION_S = 5.0
"""A client's time to send its request, and again to take the answer. Scrapers and probes take milliseconds."""

HEAD_BYTES = 16 * 1024
"""The most bytes of request line and headers: browsers send 1 to 2 KiB, 8 with large cookies of other services."""

MAX_PARAMETERS = 32
LINGER_BYTES = 64 * 1024
LINGER_S = 0.5
"""How much of a refused request is read and dropped: closing a connection with unread bytes can lose the answer."""

POLL_S = 0.25
"""How often the server checks whether it should close."""

TEXT = "text/plain; charset=utf-8"

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Defaults for all responses: scripts only from the page's own origin, no guessed content types, no framing, no caching."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers, or replacements of SECURITY_HEADERS."""


Route = Callable[[Mapping[str, str]], Response]
"""Answers a request with these query parameters. It runs on WORKERS threads, several calls at a time.

A BookKeeperError becomes a 503 with its text. Any other error becomes a 500 without details, and is logged."""


def text_response(status: int, sentence: str) -> Response:
    """One line of plain text."""
    return Response(status, TEXT, f"{sentence}\n".encode())


class HttpEndpoint:
    """Listens from its construction on, answers from ``start`` to ``close``. Also a context manager."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Route], hosts: ServedHosts | None = None) -> None:
        """``port`` 0 takes a free one; ``routes`` are by exact path. Raises ConfigError if it cannot listen there.

        If ``hosts`` are given, requests for others, and not for the very address it listens at, are refused (served_hosts.py).
        Without them the Host header does not matter.
        """
        self._server = _Server(host, port, dict(routes), hosts)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="http", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut open connections; waits for routes that are running."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> HttpEndpoint:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = MAX_WAITING

    def __init__(self, host: str, port: int, routes: dict[str, Route], hosts: ServedHosts | None) -> None:
        self.routes = routes
        self.hosts = hosts
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="http")
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        try:
            host = parse_host(host) if host else host
        except ValueError as problem:
            raise ConfigError("the HTTP address to listen at", host, str(problem)) from None
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self.address_family = family
            super().__init__((str(address[0]), int(address[1])), _Handler)
        except (OSError, OverflowError) as problem:
            reason = why_not_bound(problem) if isinstance(problem, OSError) else str(problem)
            remedy = "stop what listens there, or choose another host and port"
            problem_text = f"it cannot be taken ({reason}): {remedy}"
            raise ConfigError("the HTTP address to listen at", str(HostPort(host, port)), problem_text) from problem

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_taken = len(self._open) < WORKERS + MAX_WAITING
            if is_taken:
                self._open.add(request)
        if is_taken:
            self._pool.submit(self._answer, request, client_address)
        else:
            logger.warning("an HTTP connection of %s was closed: %d are open already", client_address[0], WORKERS + MAX_WAITING)
            self.shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for request in self._open:
                with suppress(OSError):  # its client has gone
                    request.shutdown(socket.SHUT_RDWR)
        self._pool.shutdown()

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as problem:
            logger.debug("the HTTP connection of %s broke off: %s", client_address[0], problem)
        except Exception:
            logger.exception("an HTTP request of %s was not answered", client_address[0])
        finally:
            with self._lock:
                self._open.discard(request)
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    """One connection with one request."""

    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "bk_spark"
    sys_version = ""

    def setup(self) -> None:
        deadline = time.monotonic() + CONNECTION_S
        super().setup()
        self._head = _read_head(self.connection, deadline)
        self.rfile = BytesIO(self._head)

    def handle(self) -> None:
        self.close_connection = True
        self.command, self.requestline = "", ""
        if _is_whole(self._head):
            self.raw_requestline = self.rfile.readline()
            if self.parse_request():
                self._send(self._respond())
        elif len(self._head) >= HEAD_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request has {HEAD_BYTES} bytes at most")
        elif self._head:  # a probe of the open port sends nothing
            self.send_error(HTTPStatus.REQUEST_TIMEOUT, f"the request did not come within {CONNECTION_S:g} s")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with one sentence; http.server calls this too."""
        self._send(text_response(code, f"{HTTPStatus(code).phrase}: {message or HTTPStatus(code).description or 'no answer'}"))

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests: a scrape comes every few seconds."""

    def _respond(self) -> Response:
        if self.command not in ("GET", "HEAD"):
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.command} is not taken here: use GET or HEAD")
        try:
            url, name = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname
            parameters = dict(parse_qsl(url.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
        except ValueError as problem:
            return text_response(HTTPStatus.BAD_REQUEST, f"the address of the request is malformed: {problem}")
        hosts = self.server.hosts
        if hosts is not None and not hosts.has(name) and name != self.server.server_address[0]:
            asked = f"a request for {name!r:.200}" if name else "a request without a host"
            return text_response(HTTPStatus.FORBIDDEN, f"{asked} is refused: this server was started for {hosts} alone")
        route = self.server.routes.get(url.path)
        if route is None:
            known = ", ".join(sorted(self.server.routes))
            return text_response(HTTPStatus.NOT_FOUND, f"there is nothing at this path, there is {known}")
        return _call(url.path, route, parameters)

    def _send(self, response: Response) -> None:
        self.request_version = self.protocol_version  # send headers to HTTP/0.9 clients too
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Connection": "close",
            **SECURITY_HEADERS,
            **dict(response.headers),
        }
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.connection.settimeout(CONNECTION_S)  # bounds a whole write, not each part of it
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        if response.status >= HTTPStatus.BAD_REQUEST:
            _drop_rest(self.connection)


def _call(path: str, route: Route, parameters: Mapping[str, str]) -> Response:
    try:
        return route(parameters)
    except BookKeeperError as problem:
        return text_response(HTTPStatus.SERVICE_UNAVAILABLE, str(problem))
    except Exception:
        logger.exception("an HTTP request for %s could not be answered", path)
        return text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be made: the log of this process says why")


def _read_head(connection: socket.socket, deadline: float) -> bytes:
    """The request line and headers; cut off at ``deadline``, at the client's end of sending, and at HEAD_BYTES."""
    head = b""
    while len(head) < HEAD_BYTES and not _is_whole(head):
        try:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            more = connection.recv(HEAD_BYTES - len(head))
        except TimeoutError:
            break
        if not more:
            break
        head += more
    return head


def _is_whole(head: bytes) -> bool:
    return b"\r\n\r\n" in head or b"\n\n" in head


def _drop_rest(connection: socket.socket) -> None:
    """Read until the client has got the answer, so that closing the connection does not lose it."""
    deadline, dropped = time.monotonic() + LINGER_S, 0
    with suppress(OSError):  # the client has gone
        connection.shutdown(socket.SHUT_WR)
        while dropped < LINGER_BYTES and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            more = connection.recv(4096)
            if not more:
                return
            dropped += len(more)
