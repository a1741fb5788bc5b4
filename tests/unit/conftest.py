"""What a unit test may not do: open a connection, start a process, or take seconds of CPU. Such a test belongs elsewhere.

Sockets and processes are refused by an audit hook, which Python calls before it opens either; gRPC opens its own, so its entry
points are refused by name. CPU time is counted, not the time on the clock, and it is counted in seconds of a machine on which
``_reference_work`` takes ``REFERENCE_S``. A test should stay below one such second, and fails at ``MOST_CPU_S``: on a shared
machine, the same work takes twice its time from one second to the next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.budget import IS_SOAK

REFUSED_EVENTS = ("socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
REFUSED_CALLS = ("server", "insecure_channel", "secure_channel")
MOST_CPU_S = 3.0
REFERENCE_S = 0.05

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


@pytest.fixture(autouse=True, scope="session")
def _table_of_characters() -> None:
    """In a fresh clone, Hypothesis makes its table of all characters (0.7 s) for the first text that it draws: no test pays."""

    @given(st.text())
    def draw(_: str) -> None:
        pass

    draw()


def _reference_work() -> None:
    table = {}
    for number in range(500_000):
        table[number % 1024] = str(number)


def _cpu_s(work: Callable[[], None]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    began_s = time.process_time()
    result = yield
    took_s = time.process_time() - began_s
    if not IS_SOAK and took_s > MOST_CPU_S:
        slowness = max(1.0, _cpu_s(_reference_work) / REFERENCE_S)
        counted_s = took_s / slowness
        assert counted_s <= MOST_CPU_S, f"{counted_s:.1f} s of CPU; a unit test takes at most {MOST_CPU_S:g} s"
    return result
