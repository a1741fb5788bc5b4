"""What a unit test may not do: open a connection, start a process, or take a second of CPU. Such a test belongs elsewhere.

Sockets and processes are refused by an audit hook, which Python calls before it opens either; gRPC opens its own, so its entry
points are refused by name. CPU time is counted, not the time on the clock, which says more about the machine than the test.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from tests.budget import IS_SOAK

REFUSED_EVENTS = ("socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
REFUSED_CALLS = ("server", "insecure_channel", "secure_channel")
MOST_CPU_S = 1.0

_running: list[str] = []
"""The unit test that runs now, if one does."""


def _refuse(event: str, _: tuple[Any, ...] = ()) -> None:
    if _running and event in REFUSED_EVENTS:
        raise RuntimeError(f"a unit test opens no socket and starts no process ({event}): move it to tests/cluster")


sys.addaudithook(_refuse)


def _refused(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a unit test opens no socket (gRPC): move it to tests/cluster")


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for package in (grpc, grpc.aio):
        for name in REFUSED_CALLS:
            monkeypatch.setattr(package, name, _refused)
    _running.append(request.node.nodeid)
    yield
    _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    began_s = time.process_time()
    result = yield
    took_s = time.process_time() - began_s
    assert IS_SOAK or took_s <= MOST_CPU_S, f"{took_s:.1f} s of CPU; a unit test takes at most {MOST_CPU_S:g} s"
    return result
