"""A future in a process that was forked while another thread had it in its hands alone."""

from __future__ import annotations

import threading
from concurrent.futures import as_completed, wait

import pytest

from bk_spark.calls import forks
from bk_spark.calls.call_future import CallFuture
from bk_spark.errors import ConfigError


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> CallFuture:
    """Its lock was held by a thread that the new process does not have."""
    future = CallFuture()
    holder = threading.Thread(target=future._guard.acquire)
    holder.start()
    holder.join()
    monkeypatch.setattr(forks, "_forked_from", 1)
    return future


def test_in_a_forked_process_a_future_that_nobody_knows_of_has_failed(forked: CallFuture) -> None:
    called: list[CallFuture] = []
    forked.add_done_callback(called.append)
    assert forked.done()
    assert called == [forked]
    for ask in (forked.result, forked.exception):
        assert isinstance(_outcome(ask), ConfigError)


def test_so_does_whoever_waits_for_it_by_the_standard_library_learn(forked: CallFuture) -> None:
    assert wait([forked], 5).done == {forked}
    assert list(as_completed([forked], 5)) == [forked]


def test_one_that_was_done_at_the_fork_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    future = CallFuture()
    future.set_result(7)
    monkeypatch.setattr(forks, "_forked_from", 1)
    assert (future.done(), future.result(), wait([future], 5).done) == (True, 7, {future})


def _outcome(ask: object) -> object:
    try:
        return ask()  # type: ignore[operator]
    except ConfigError as problem:
        return problem
