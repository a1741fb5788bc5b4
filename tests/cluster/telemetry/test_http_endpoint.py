"""The HTTP endpoint: what it answers, and what no client can make it do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from bk_spark.errors import ConfigError, StorageError
from bk_spark.telemetry import http_endpoint
from bk_spark.telemetry.http_endpoint import HEAD_BYTES, MAX_WAITING, WORKERS, HttpEndpoint, Response
from bk_spark.telemetry.served_hosts import ServedHosts

HOST = "127.0.0.1"


def _hello(parameters: Mapping[str, str]) -> Response:
    return Response(200, "text/html", f"hello {parameters.get('name', 'you')}".encode(), (("X-More", "1"),))


def _ill(_: Mapping[str, str]) -> Response:
    raise StorageError("reading", "the disk is gone")


def _broken(_: Mapping[str, str]) -> Response:
    raise ValueError("a secret that is nobody's business")


ROUTES = {"/hello": _hello, "/ill": _ill, "/broken": _broken}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[HttpEndpoint]:
    with HttpEndpoint(HOST, 0, ROUTES) as endpoint:
        yield endpoint


def _ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in lower case, body: all that came until the server closed."""
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, body


def _get(port: int, path: str, host: str = "x") -> tuple[int, dict[str, str], bytes]:
    return _ask(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def test_a_route_is_given_the_query_and_answers_with_type_length_and_security_headers(endpoint: HttpEndpoint) -> None:
    status, headers, body = _get(endpoint.port, "/hello?name=Ada%20L&empty=")
    assert (status, body) == (200, b"hello Ada L")
    assert (headers["content-type"], headers["content-length"], headers["x-more"]) == ("text/html", str(len(body)), "1")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert "python" not in headers["server"].lower()


def test_head_answers_as_get_without_the_body(endpoint: HttpEndpoint) -> None:
    status, headers, body = _ask(endpoint.port, b"HEAD /hello HTTP/1.1\r\n\r\n")
    assert (status, headers["content-length"], body) == (200, "9", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_other_methods_are_refused_and_told_what_is_taken(endpoint: HttpEndpoint, method: str) -> None:
    body = b"x" * 50_000  # more than is read with the head
    head = f"{method} /hello HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    status, headers, answer = _ask(endpoint.port, head + body)
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert answer.decode() == f"{method} is not taken here: use GET or HEAD\n"


def test_a_refusal_reaches_a_client_that_goes_on_sending(endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "LINGER_S", 10.0)
    with socket.create_connection((HOST, endpoint.port), timeout=10) as connection:
        connection.sendall(b"POST /hello HTTP/1.1\r\n\r\n" + b"x" * 20_000)
        answer = b""
        while more := connection.recv(65536):
            answer += more
            connection.sendall(b"x" * 1000)
        connection.sendall(b"x" * 1000)
        connection.sendall(b"x" * 1000)
    assert b" 405 " in answer


@pytest.mark.parametrize("path", ["/", "/hello/", "/hell", "/../etc/passwd", "//hello/x", "/%68ello"])
def test_paths_are_exact_and_there_is_no_directory(endpoint: HttpEndpoint, path: str) -> None:
    status, _, body = _get(endpoint.port, path)
    assert status == 404
    assert body.decode() == "there is nothing at this path, there is /broken, /hello, /ill\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /hello HTTP/9.9\r\n\r\n", 505),
        (b"GET /hello HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(200)) + b"\r\n", 431),
        (b"GET /" + b"x" * HEAD_BYTES, 431),
        (b"GET /hello?" + b"&".join(b"a%d=1" % n for n in range(40)) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET http://[bad/hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: [bad\r\n\r\n", 400),
    ],
)
def test_a_malformed_or_too_large_request_is_refused_in_one_line(
    endpoint: HttpEndpoint, request_: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    found, headers, body = _ask(endpoint.port, request_)
    assert (found, headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert body.count(b"\n") == 1
    assert body.endswith(b"\n")
    assert caplog.records == []


def test_an_error_of_ours_is_shown_and_any_other_one_only_logged(
    endpoint: HttpEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, body = _get(endpoint.port, "/ill")
    assert (status, body) == (503, b"reading failed: the disk is gone\n")
    status, _, body = _get(endpoint.port, "/broken")
    assert (status, b"secret" in body) == (500, False)
    assert "a secret" in caplog.text


def test_other_host_names_are_refused_only_where_hosts_are_given(endpoint: HttpEndpoint) -> None:
    assert _get(endpoint.port, "/hello", "evil.example")[0] == 200
    with HttpEndpoint(HOST, 0, ROUTES, hosts=ServedHosts.of(HOST)) as picky:
        assert _get(picky.port, "/hello", f"LocalHost:{picky.port}")[0] == 200
        status, _, body = _get(picky.port, "/hello", "evil.example")
        assert (status, b"evil.example" in body) == (403, True)
        assert _ask(picky.port, b"GET /hello HTTP/1.0\r\n\r\n")[0] == 403


def test_a_taken_port_is_an_error_that_names_it_and_the_way_out(endpoint: HttpEndpoint) -> None:
    with pytest.raises(ConfigError, match=f"{HOST}:{endpoint.port}.*choose another host and port"):
        HttpEndpoint(HOST, endpoint.port, ROUTES)


def test_clients_that_send_slowly_are_given_up_and_take_no_thread_beyond_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "CONNECTION_S", 0.5)
    with HttpEndpoint(HOST, 0, ROUTES) as endpoint:
        before = threading.active_count()
        slow = [socket.create_connection((HOST, endpoint.port), timeout=10) for _ in range(2 * WORKERS)]
        began = time.monotonic()
        for one in slow:
            one.sendall(b"GET /hel")
        assert _get(endpoint.port, "/hello")[0] == 200  # behind two rounds of them
        assert time.monotonic() - began < 5
        assert threading.active_count() <= before + WORKERS
        assert all(b"408" in one.recv(4096) for one in slow)
        for one in slow:
            one.close()


def test_a_client_that_trickles_bytes_has_no_more_time_than_one_that_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "CONNECTION_S", 0.5)
    with HttpEndpoint(HOST, 0, ROUTES) as endpoint, socket.create_connection((HOST, endpoint.port), timeout=0.1) as slow:
        answer, deadline = b"", time.monotonic() + 10
        while not answer and time.monotonic() < deadline:
            slow.sendall(b"x")
            try:
                answer = slow.recv(4096)
            except TimeoutError:
                continue
        assert b"408" in answer


def test_a_client_that_does_not_read_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "CONNECTION_S", 0.3)
    large = {"/large": lambda _: Response(200, "text/plain", bytes(64 * 1024 * 1024))}
    with HttpEndpoint(HOST, 0, large) as endpoint:
        deaf = [socket.create_connection((HOST, endpoint.port), timeout=10) for _ in range(WORKERS)]
        for one in deaf:
            one.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert _get(endpoint.port, "/other")[0] == 404
        for one in deaf:
            one.close()


def test_connections_beyond_those_that_may_wait_are_closed_at_once() -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    def stuck(_: Mapping[str, str]) -> Response:
        entered.release()
        release.wait(30)
        return Response(200, "text/plain", b"at last")

    with HttpEndpoint(HOST, 0, {"/stuck": stuck}) as endpoint:
        waiting = [socket.create_connection((HOST, endpoint.port), timeout=10) for _ in range(WORKERS + MAX_WAITING)]
        for one in waiting:
            one.sendall(b"GET /stuck HTTP/1.1\r\n\r\n")
        try:
            assert all(entered.acquire(timeout=10) for _ in range(WORKERS))
            with socket.create_connection((HOST, endpoint.port), timeout=5) as refused:
                assert refused.recv(1) == b""
        finally:
            release.set()
        assert all(b"at last" in _all_of(one) for one in waiting)


def test_closing_breaks_off_connections_and_frees_the_port() -> None:
    endpoint = HttpEndpoint(HOST, 0, ROUTES)
    endpoint.start()
    port, began = endpoint.port, time.monotonic()
    with socket.create_connection((HOST, port), timeout=10) as idle:
        idle.sendall(b"GET ")
        while not endpoint._server._open and time.monotonic() < began + 10:
            time.sleep(0.01)
        began = time.monotonic()
        endpoint.close()
        assert time.monotonic() - began < http_endpoint.CONNECTION_S / 2
    HttpEndpoint(HOST, port, ROUTES).close()


def _all_of(connection: socket.socket) -> bytes:
    with connection:
        answer = b""
        while more := connection.recv(65536):
            answer += more
    return answer
