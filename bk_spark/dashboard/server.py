"""Serves the page and its JSON over HTTP. Only GET; no route changes anything.

``/`` is the whole page, with its style and the newest overview inside, so that one request paints it. ``/app.js`` then asks for
the JSON of each view. JSON cannot be taken for markup: it is sent as application/json, and inside the page ``<`` is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Self

from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard import ledgers, logs
from bk_spark.dashboard.collector import Collector
from bk_spark.dashboard.snapshots import Record
from bk_spark.host_port import HostPort
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, Route
from bk_spark.telemetry.served_hosts import ServedHosts

SCRIPTS = ("names.js", "dom.js", "drawing.js", "views.js", "bookies.js", "app.js")
"""Sent as one script, in this order."""

PAGE_SIZE = 100
"""Ledgers or logs in one answer, unless the request says how many."""

MAX_ID_CHARACTERS = 1000
"""Of a bookie's id or the name of a log in a request: more than any has."""

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Allows only the page's own script and style: even text from the cluster that is taken for markup could run nothing."""

_SLOT = "<!--overview-->"
"""The place in the page for the newest overview."""


class ParameterError(Exception):
    """A request's parameter is invalid. The text names it, and says what it must be."""


class Dashboard:
    """Serves the page of the client's cluster from ``start`` to ``close``, or in a ``with`` statement.

    Only requests for ``host``, for the names of loopback if that is it or it is any address, and for ``further_hosts`` are
    answered (telemetry/served_hosts.py). Raises ConfigError if the address is taken. The caller closes ``client`` after this.
    """

    def __init__(self, client: BookKeeper, host: str = "127.0.0.1", port: int = 0, further_hosts: Collection[str] = ()) -> None:
        self._collector = Collector(client)
        style, self._script = _text("style.css"), "".join(_text(name) for name in SCRIPTS)
        self._page = _text("page.html").replace("/*style*/", style)
        style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self._headers = (("Content-Security-Policy", POLICY.format(style=style_hash)),)
        self._endpoint = HttpEndpoint(host, port, self._routes(), ServedHosts.of(host, further_hosts))
        self._host = host

    @property
    def url(self) -> str:
        return f"http://{HostPort(self._host, self._endpoint.port)}/"

    def start(self) -> None:
        self._collector.start()
        self._endpoint.start()

    def close(self) -> None:
        self._endpoint.close()
        self._collector.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _routes(self) -> dict[str, Route]:
        collector = self._collector
        return {
            "/": lambda _: self._document(),
            "/app.js": lambda _: Response(HTTPStatus.OK, "text/javascript; charset=utf-8", self._script.encode()),
            "/api/cluster": _json(lambda _: collector.overview()),
            "/api/bookies": _json(lambda _: collector.bookies()),
            "/api/bookie": _json(lambda asked: collector.bookie(_given(asked, "id")[:MAX_ID_CHARACTERS])),
            "/api/underreplicated": _json(lambda _: collector.under_replicated()),
            "/api/ledgers": _json(lambda asked: collector.ledgers(*_ledger_page(asked))),
            "/api/ledger": _json(lambda asked: collector.ledger(_number(asked, "id", None, ledgers.MAX_ID))),
            "/api/logs": _json(
                lambda asked: collector.logs(
                    asked.get("after", "")[:MAX_ID_CHARACTERS], _number(asked, "limit", PAGE_SIZE, logs.MAX_PAGE, 1)
                )
            ),
            "/api/log": _json(lambda asked: collector.log(_given(asked, "name"))),
        }

    def _document(self) -> Response:
        overview = _encoded(self._collector.overview()).replace("<", "\\u003c")
        return Response(HTTPStatus.OK, "text/html; charset=utf-8", self._page.replace(_SLOT, overview).encode(), self._headers)


def _json(answer: Callable[[Mapping[str, str]], Record]) -> Route:
    """A route that sends the record that ``answer`` returns: 400 for invalid parameters, 404 for what does not exist."""

    def route(asked: Mapping[str, str]) -> Response:
        try:
            record = answer(asked)
        except ParameterError as problem:
            return _response(HTTPStatus.BAD_REQUEST, {"problem": str(problem)})
        value = record["value"]
        is_absent = isinstance(value, dict) and "absent" in value
        return _response(HTTPStatus.NOT_FOUND if is_absent else HTTPStatus.OK, record)

    return route


def _response(status: int, record: Record) -> Response:
    return Response(status, "application/json", _encoded(record).encode())


def _encoded(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def _ledger_page(asked: Mapping[str, str]) -> tuple[int, int, str, str]:
    state = asked.get("state", "")
    if state not in ledgers.STATES:
        raise ParameterError(f"state is {state!r}: it must be one of {', '.join(filter(None, ledgers.STATES))}, or be left out")
    limit = _number(asked, "limit", PAGE_SIZE, ledgers.MAX_PAGE, 1)
    return _number(asked, "after", -1, ledgers.MAX_ID, -1), limit, state, asked.get("bookie", "")[:MAX_ID_CHARACTERS]


def _given(asked: Mapping[str, str], name: str) -> str:
    if not asked.get(name):
        raise ParameterError(f"{name} is missing")
    return asked[name]


def _number(asked: Mapping[str, str], name: str, default: int | None, largest: int, least: int = 0) -> int:
    text = asked.get(name)
    if text is None and default is not None:
        return default
    text = _given(asked, name)
    if not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 21 and least <= int(text) <= largest):
        raise ParameterError(f"{name} is {text[:100]!r}: it must be a whole number from {least} to {largest}")
    return int(text)


def _text(name: str) -> str:
    return resources.files("bk_spark.dashboard").joinpath(name).read_text(encoding="utf-8")
