"""The futures of single appends, beside those of the standard library."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait

import pytest

from bk_spark.calls.call_future import Guard
from bk_spark.client.ledger.append_future import AppendFuture, confirm_all
from bk_spark.errors import LedgerClosedError

FAILURE = LedgerClosedError(1, "the ledger")


@pytest.fixture
def futures() -> list[AppendFuture]:
    shared = Guard()
    return [AppendFuture(shared) for _ in range(5)]


def _without_guard(future: AppendFuture) -> dict[str, object]:
    return {name: value for name, value in vars(future).items() if name != "_guard"}


def _without_condition(future: Future[int]) -> dict[str, object]:
    return {name: value for name, value in vars(future).items() if name != "_condition"}


def results_of(futures: list[AppendFuture]) -> list[int]:
    return [future.result(0) for future in futures]


def test_it_has_the_fields_of_a_future_of_the_standard_library(futures: list[AppendFuture]) -> None:
    """``_condition`` is a property, which looks for a fork."""
    theirs: Future[int] = Future()
    assert _without_guard(futures[0]) == _without_condition(theirs)
    theirs.set_result(5)
    confirm_all(futures[:1], 5)
    assert _without_guard(futures[0]) == _without_condition(theirs)


def test_they_get_consecutive_ids(futures: list[AppendFuture]) -> None:
    confirm_all(futures, 7)
    assert results_of(futures) == [7, 8, 9, 10, 11]
    assert all(future.done() and future.exception() is None for future in futures)


def test_one_that_has_failed_stays_so_and_the_others_get_their_ids(futures: list[AppendFuture]) -> None:
    futures[1].set_exception(FAILURE)
    failed = vars(futures[1]).copy()
    futures[2].add_done_callback(lambda _: None)
    futures[2].set_exception(FAILURE)
    confirm_all(futures, 0)
    assert vars(futures[1]) == failed
    assert [future.exception(0) for future in futures] == [None, FAILURE, FAILURE, None, None]
    assert results_of([futures[0], *futures[3:]]) == [0, 3, 4]


def test_a_wait_for_one_that_is_not_done_ends_in_time(futures: list[AppendFuture]) -> None:
    for ask in (futures[0].result, futures[0].exception):
        with pytest.raises(TimeoutError):
            ask(0.001)
    assert not futures[0].done()


def test_whoever_waits_wakes_once_all_of_the_batch_are_done(futures: list[AppendFuture]) -> None:
    seen: list[list[int]] = []
    waiting = [threading.Thread(target=lambda: seen.append(results_of(futures) if futures[0].result(60) == 3 else []))]
    waiting.append(threading.Thread(target=lambda: seen.append([futures[0].result(60)])))
    for thread in waiting:
        thread.start()
    deadline_s = time.monotonic() + 60
    while len(futures[0]._waiters) < len(waiting):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    confirm_all(futures, 3)
    for thread in waiting:
        thread.join(60)
    assert sorted(seen) == [[3], [3, 4, 5, 6, 7]]


def test_whoever_waits_is_told_of_a_failure(futures: list[AppendFuture]) -> None:
    threading.Timer(0.01, lambda: futures[0].set_exception(FAILURE)).start()
    assert futures[0].exception(60) is FAILURE
    with pytest.raises(LedgerClosedError):
        futures[0].result()


def test_callbacks_are_called_in_order_and_find_all_that_nobody_awaited_done(futures: list[AppendFuture]) -> None:
    called: list[tuple[int, bool]] = []
    for future in (futures[3], futures[1]):
        future.add_done_callback(lambda done: called.append((done.result(), futures[4].done())))
    confirm_all(futures, 0)
    assert called == [(1, True), (3, True)]
    futures[0].add_done_callback(lambda done: called.append((done.result(), True)))
    assert called[2:] == [(0, True)]


def test_what_the_standard_library_waits_with_works(futures: list[AppendFuture]) -> None:
    threading.Timer(0.01, lambda: confirm_all(futures[:2], 0)).start()
    assert wait(futures, 60, FIRST_COMPLETED).done <= set(futures[:2])
    threading.Timer(0.01, lambda: confirm_all(futures[2:], 2)).start()
    assert sorted(future.result() for future in as_completed(futures, 60)) == [0, 1, 2, 3, 4]
    assert wait(futures, 60).not_done == set()


def test_they_can_be_awaited_in_asyncio(futures: list[AppendFuture]) -> None:
    async def ids() -> list[int]:
        threading.Timer(0.01, lambda: confirm_all(futures, 0)).start()
        return await asyncio.wait_for(asyncio.gather(*map(asyncio.wrap_future, futures)), 60)

    assert asyncio.run(ids()) == [0, 1, 2, 3, 4]


def test_they_cannot_be_cancelled(futures: list[AppendFuture]) -> None:
    assert not futures[0].cancel()
    assert not futures[0].cancelled()
    confirm_all(futures, 0)
    assert futures[0].result() == 0
