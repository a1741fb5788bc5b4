"""Following one open ledger: what its metadata says is not forgotten while the metadata store does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bk_spark.datasource.read import ledger_poll
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.ledger_poll import LedgerPoll, PollThreads
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.znodes import Znodes
from tests.unit.datasource.batches import wait_until


class Handle:
    """Waits for bookies that never have news."""

    last_add_confirmed = 4
    is_closed = False
    metadata = SimpleNamespace(last_entry_id=None)

    def __init__(self, released: threading.Event) -> None:
        self._released = released
        self.problems: list[Exception] = []
        self.looks = 0

    def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float) -> int:
        self._released.wait(60)
        return beyond

    def read_last_add_confirmed(self) -> int:
        self.looks += 1
        if self.problems:
            raise self.problems.pop()
        return self.last_add_confirmed


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_change_of_the_metadata_is_looked_at_until_a_look_succeeds(released: threading.Event) -> None:
    """Log rule 2: otherwise the end of a ledger is not seen, and what lies behind it is not read."""
    told: list[Callable[[], None]] = []
    store = SimpleNamespace(watch=lambda _, on_change: told.append(on_change) or (lambda: None))
    handle = Handle(released)
    log: Any = SimpleNamespace(open_ledger=lambda _: handle, logs=SimpleNamespace(store=store, znodes=Znodes("/ledgers")))
    poll = LedgerPoll(cast("FollowedLog", log), 7, lambda: None)
    PollThreads().add(poll)
    wait_until(lambda: poll.end is not None)
    poll.catch_up()
    assert handle.looks == 0
    told[0]()
    handle.problems.append(MetadataUnavailableError("zk://a:1/b", "no connection"))
    with pytest.raises(MetadataUnavailableError):
        poll.catch_up()
    poll.catch_up()
    poll.catch_up()
    assert handle.looks == 2
    poll.stop()


class Poll:
    """Waits so many times, until a test lets it."""

    def __init__(self, waits: int, released: threading.Event) -> None:
        self.left = waits
        self._released = released
        self.longest: set[float] = set()

    def wait(self, longest_s: float) -> bool:
        self._released.wait(60)
        self.longest.add(longest_s)
        self.left -= 1
        return self.left > 0


def test_more_ledgers_than_threads_are_waited_for_in_turns_and_the_threads_end(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_poll, "MAX_THREADS", 3)
    polls, threads = [Poll(5, released) for _ in range(10)], PollThreads()
    for poll in polls:
        threads.add(cast("LedgerPoll", poll))
    assert threads._threads == 3
    released.set()
    wait_until(lambda: all(poll.left == 0 for poll in polls))
    wait_until(lambda: threads._threads == 0)
    assert all(ledger_poll.SHARED_POLL_S in poll.longest for poll in polls[3:])


def test_a_ledger_has_a_thread_of_its_own_while_there_are_enough(released: threading.Event) -> None:
    polls, threads = [Poll(1, released) for _ in range(10)], PollThreads()
    for poll in polls:
        threads.add(cast("LedgerPoll", poll))
    assert threads._threads == 10
    released.set()
    wait_until(lambda: threads._threads == 0)
    assert [poll.longest for poll in polls] == [{ledger_poll.POLL_S}] * 10
