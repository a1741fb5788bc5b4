"""A metadata URI whose hosts have no address: said at once, unless one of them has, or may have."""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import Any

import pytest

from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.zookeeper import connect
from bk_spark.metadata.zookeeper_obstacles import unknown_hosts


def _known(host: str, *_: Any, **__: Any) -> list[Any]:
    if host != "known":
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]


def test_hosts_without_an_address_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _known)
    began_s = time.monotonic()
    with pytest.raises(MetadataUnavailableError) as refused:
        connect("zk://nosuch-a:2181,nosuch-b:2181/ledgers", connect_timeout_s=60.0, session_timeout_s=10.0)
    assert time.monotonic() - began_s < 30.0
    for host in ("nosuch-a", "nosuch-b"):
        assert f"the host name {host} has no address: Name or service not known" in str(refused.value)


def test_one_host_with_an_address_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _known)
    assert unknown_hosts(["nosuch:2181", "known:2181"]) == ""


def test_a_name_that_no_resolver_takes_has_no_address() -> None:
    name = "a" * 70  # longer than a label of a host name
    assert f"the host name {name} has no address" in unknown_hosts([f"{name}:2181"])


@pytest.mark.parametrize(
    "problem",
    [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution"),
        OSError(errno.EMFILE, "Too many open files"),
    ],
    ids=["no name server answers", "a name server fails", "no descriptor is left"],
)
def test_a_look_up_that_fails_for_another_reason_is_no_no(monkeypatch: pytest.MonkeyPatch, problem: OSError) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise problem

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert unknown_hosts(["later:2181"]) == ""


def test_name_servers_that_do_not_answer_take_no_longer_than_the_caller_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        answered.wait(60.0)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    threading.Timer(1.0, answered.set).start()  # kazoo's own look-up ends with that, as with a name server's time
    with pytest.raises(MetadataUnavailableError, match=r"no connection within 0\.2 s"):
        connect("zk://slow:2181/ledgers", connect_timeout_s=0.2, session_timeout_s=10.0)
