"""An object store on loopback, with faults in front of it.

moto's server: a wheel of Python, ready in a second, that keeps objects in memory and answers as S3 does. S3Proxy would be a JVM
and sixty jars, MinIO a binary of its own. What it cannot do, such as to fail, is put before it here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.fs as fs
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

REGION = "us-east-1"
BUCKET = "lake"

Fault = Callable[[Request], Response | None]
"""What is answered in the place of the store; None: its own answer."""


class ObjectStore:
    """One server."""

    def __init__(self) -> None:
        self._store = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._fault: Fault | None = None
        self.requests: list[str] = []
        """Methods and paths, in order."""

    @contextmanager
    def running(self) -> Iterator[ObjectStore]:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            self.client().create_dir(BUCKET)
            yield self
        finally:
            self._server.shutdown()
            thread.join()

    @property
    def properties(self) -> dict[str, str]:
        """As a tier's catalog has them."""
        return {"s3.endpoint": self.endpoint, "s3.region": REGION}

    def client(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            endpoint_override=self.endpoint, region=REGION, allow_bucket_creation=True, allow_bucket_deletion=True
        )

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        self.requests.append(f"{request.method} {request.path}")
        fault = self._fault
        answer = fault(request) if fault is not None else None
        given: Iterable[bytes] = self._store(environ, start_response) if answer is None else answer(environ, start_response)
        return given


def error(status: int, code: str) -> Response:
    """As S3 tells an error."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by a test</Message></Error>"
    return Response(text, status, content_type="application/xml")
