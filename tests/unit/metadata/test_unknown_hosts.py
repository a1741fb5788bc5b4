"""A metadata URI whose hosts have no address: said at once, unless one of them has."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.zookeeper import connect
from bk_spark.metadata.zookeeper_session import ZooKeeperSockets


def _known(host: str, *_: Any, **__: Any) -> list[Any]:
    if host != "known":
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]


def test_hosts_without_an_address_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _known)
    began_s = time.monotonic()
    with pytest.raises(MetadataUnavailableError) as refused:
        connect("zk://nosuch-a:2181,nosuch-b:2181/ledgers", connect_timeout_s=30.0, session_timeout_s=10.0)
    assert time.monotonic() - began_s < 10.0
    for host in ("nosuch-a", "nosuch-b"):
        assert f"the host name {host} has no address: Name or service not known" in str(refused.value)


def test_one_host_with_an_address_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _known)
    assert ZooKeeperSockets().unknown_hosts(["nosuch:2181", "known:2181"], 30.0) == ""


def test_a_name_that_no_resolver_takes_has_no_address() -> None:
    name = "a" * 70  # longer than a label of a host name
    assert f"the host name {name} has no address" in ZooKeeperSockets().unknown_hosts([f"{name}:2181"], 30.0)


def test_name_servers_that_do_not_answer_take_no_longer_than_the_caller_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(60.0))
    try:
        assert ZooKeeperSockets().unknown_hosts(["slow:2181"], 0.01) == ""
    finally:
        answered.set()


def test_a_host_is_not_unknown_while_no_name_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unanswered)
    assert ZooKeeperSockets().unknown_hosts(["later:2181"], 30.0) == ""
