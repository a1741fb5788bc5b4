"""What a gateway tells about itself over HTTP: /metrics, /health and /ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bk_spark.gateway.calls.open_calls import GatewayCalls
from bk_spark.gateway.server import Gateway
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, Route, text_response
from bk_spark.telemetry.metrics import CLIENT, GATEWAY, GATEWAY_OPEN_CALLS, GATEWAY_WAITING_CALLS
from bk_spark.telemetry.registry import CONTENT_TYPE, Figure, asked, render

WAITING_S: Final = 10.0


@contextmanager
def http_endpoint(gateway: Gateway, host: str, port: int) -> Iterator[None]:
    """Serves while the block runs; port 0: not at all. Raises ConfigError if the port is taken."""
    if not port:
        yield
        return
    routes: dict[str, Route] = {
        "/metrics": lambda _: Response(200, CONTENT_TYPE, render(GATEWAY, CLIENT)),
        "/health": lambda _: text_response(200, "alive"),
        "/ready": lambda _: _ready(gateway.why_not_ready()),
    }
    with asked(GATEWAY, lambda: figures(gateway.calls)), HttpEndpoint(host, port, routes):
        yield


def figures(calls: GatewayCalls) -> Iterator[Figure]:
    open_calls, now_s = calls.all(), calls.clock()
    for method, count in sorted(Counter(call.method for call in open_calls).items()):
        yield Figure(GATEWAY_OPEN_CALLS, count, (method,))
    waiting = sum(since is not None and now_s - since >= WAITING_S for since in (call.waits_since for call in open_calls))
    yield Figure(GATEWAY_WAITING_CALLS, waiting)


def _ready(problem: str) -> Response:
    return text_response(503, problem) if problem else text_response(200, "ready")
