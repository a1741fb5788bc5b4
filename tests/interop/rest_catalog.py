"""Iceberg's own REST catalog, from Maven, and a relay before it that loses answers and is slow."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import java_command
from tests.soak.standalone.standalone import free_port

_POM = Path(__file__).resolve().parent / "rest-catalog-pom.xml"
_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_READY_S = 60.0
_ANSWER_S = 60.0

Fault = Callable[[str, str], bool]
"""The method and path of a request that was carried out → whether its answer is lost. It may take its time."""
Hold = Callable[[str, str], object]
"""Returns once a request may go on to the catalog."""


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """The address of the catalog, which keeps its tables below the directory. Raises SkippedError where it is not to be had."""
    port, java = free_port(), java_command(_JAVA, _POM)
    settings = {
        "CATALOG_WAREHOUSE": str(directory / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        "CATALOG_REST_PORT": str(port),
    }
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen([*java, _SERVER], env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        _await_ready(server, f"http://127.0.0.1:{port}/v1/config", directory / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _await_ready(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            urllib.request.urlopen(address, timeout=_READY_S).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the catalog does not answer: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)


class Relay:
    """Passes requests on to a catalog, and its answers back, unless a fault says otherwise."""

    def __init__(self, catalog: str) -> None:
        self._target = catalog.removeprefix("http://")
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                relay._pass_on(self)

            do_GET = do_POST = do_HEAD = do_DELETE = _pass_on

            def log_message(self, format: str, *args: object) -> None:
                """pytest's output is for failures."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._fault: Fault = lambda method, path: False
        self._hold: Hold = lambda method, path: None

    @contextmanager
    def running(self) -> Iterator[Relay]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        before, self._fault = self._fault, fault
        try:
            yield
        finally:
            self._fault = before

    @contextmanager
    def holding(self, hold: Hold) -> Iterator[None]:
        before, self._hold = self._hold, hold
        try:
            yield
        finally:
            self._hold = before

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        fault = self._fault
        self._hold(request.command, request.path)
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        headers = {name: one for name, one in request.headers.items() if name.lower() not in ("host", "accept-encoding")}
        connection = HTTPConnection(self._target, timeout=_ANSWER_S)
        try:
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if fault(request.command, request.path):
            request.close_connection = True
            return
        with suppress(ConnectionError):  # who asked has given up
            request.send_response(answer.status)
            request.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
