"""A serving bookie stays registered, whatever happens to its ZooKeeper sessions, in the mode that it is in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from bk_spark.bookie.process import registration as registered
from bk_spark.bookie.process.registration import Registration
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, list_bookies, lookup, register
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper_session import SessionState
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
HERE = BookieAddress("b1", "here", 1, "/rack-1")
ELSEWHERE = BookieAddress("b1", "elsewhere", 2)
DEADLINE_S = 60.0


class Session(MemoryStore):
    """A session in memory that can be renewed; its next creations can fail."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self._callbacks: list[Callable[[], None]] = []
        self.session = SessionState(timeout_s=10.0, is_connected=True)
        self.failing_creations = 0
        self.tried = threading.Event()

    def on_new_session(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def renew(self) -> None:
        """The old session's ephemeral paths go, and the new session is reported."""
        self.close()
        self.session = replace(self.session, lost=self.session.lost + 1)
        for callback in self._callbacks:
            callback()

    def create(self, path: str, value: bytes = b"", **options: bool) -> None:
        self.tried.set()
        if self.failing_creations:
            self.failing_creations -= 1
            raise MetadataUnavailableError(self.uri, "no answer")
        super().create(path, value, **options)


def await_registering() -> None:
    """Until nobody registers again any more."""
    for thread in threading.enumerate():
        if thread.name == registered.THREAD_NAME:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> MemoryTree:
    monkeypatch.setattr(registered, "RETRY_S", 0.01)
    made = MemoryTree(lambda: 0)
    initialise_cluster(MemoryStore(made), ZNODES)
    return made


def serving(tree: MemoryTree) -> tuple[Session, Registration]:
    session = Session(tree)
    registration = Registration(session, ZNODES, HERE, patience_s=1.0)  # type: ignore[arg-type]
    registration.keep()
    session.tried.clear()
    return session, registration


def found(tree: MemoryTree) -> BookieAddress | None:
    return lookup(MemoryStore(tree), ZNODES, HERE.bookie_id)


def test_a_bookie_registers_again_in_a_new_session_with_its_rack(tree: MemoryTree) -> None:
    session, _ = serving(tree)
    session.renew()
    await_registering()
    assert found(tree) == HERE


def test_a_registration_again_that_meets_another_one_is_tried_until_that_is_gone(tree: MemoryTree) -> None:
    """And whoever else is told of the new session is not kept waiting. Situation 88."""
    session, _ = serving(tree)
    session.close()
    other = MemoryStore(tree)
    register(other, ZNODES, ELSEWHERE)
    session.renew()
    assert session.tried.wait(DEADLINE_S)
    assert found(tree) == ELSEWHERE
    other.close()
    await_registering()
    assert found(tree) == HERE


def test_a_registration_again_without_an_answer_is_tried_again(tree: MemoryTree) -> None:
    session, _ = serving(tree)
    session.failing_creations = 3
    session.renew()
    await_registering()
    assert found(tree) == HERE


def test_a_bookie_that_stops_gives_up_registering_again(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    session.close()
    register(MemoryStore(tree), ZNODES, ELSEWHERE)
    session.renew()
    assert session.tried.wait(DEADLINE_S)
    registration.stop_waiting()
    await_registering()
    assert found(tree) == ELSEWHERE


def is_read_only(tree: MemoryTree) -> list[bool]:
    return [one.read_only for one in list_bookies(MemoryStore(tree), ZNODES)]


def test_a_bookie_moves_to_the_read_only_ones_and_back(tree: MemoryTree) -> None:
    """Situation 68."""
    _, registration = serving(tree)
    assert is_read_only(tree) == [False]
    registration.set_read_only(True)
    assert is_read_only(tree) == [True]
    registration.set_read_only(False)
    assert is_read_only(tree) == [False]


def test_a_read_only_bookie_stays_read_only_in_a_new_session(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    registration.set_read_only(True)
    session.renew()
    await_registering()
    assert is_read_only(tree) == [True]


def test_a_bookie_that_becomes_read_only_without_an_answer_registers_so_in_its_next_session(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    session.failing_creations = 1
    with pytest.raises(MetadataUnavailableError):
        registration.set_read_only(True)
    session.renew()
    await_registering()
    assert is_read_only(tree) == [True]


def test_a_bookie_that_starts_with_full_disks_registers_as_read_only_at_once(tree: MemoryTree) -> None:
    Registration(Session(tree), ZNODES, HERE, patience_s=1.0, is_read_only=True).keep()  # type: ignore[arg-type]
    assert is_read_only(tree) == [True]


def test_a_bookie_that_stops_is_not_registered_by_a_move_that_comes_late(tree: MemoryTree) -> None:
    _, registration = serving(tree)
    registration.stop_waiting()
    registration.end()
    registration.set_read_only(True)
    assert is_read_only(tree) == []


def test_a_bookie_that_stops_before_it_registers_does_not_do_so_later(tree: MemoryTree) -> None:
    registration = Registration(Session(tree), ZNODES, HERE, patience_s=1.0)  # type: ignore[arg-type]
    registration.stop_waiting()
    registration.end()
    registration.keep()
    assert found(tree) is None


def test_a_bookie_that_stops_leaves_what_another_process_registered_meanwhile(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    session.close()
    register(MemoryStore(tree), ZNODES, ELSEWHERE)
    session.renew()
    assert session.tried.wait(DEADLINE_S)
    registration.stop_waiting()
    await_registering()
    registration.end()
    assert found(tree) == ELSEWHERE


def test_a_bookie_that_has_not_registered_yet_says_so(tree: MemoryTree) -> None:
    registration = Registration(Session(tree), ZNODES, HERE, patience_s=1.0)  # type: ignore[arg-type]
    assert registration.problem() == "it has not registered yet"
    registration.keep()
    assert registration.problem() == ""


def test_a_bookie_whose_session_was_lost_says_so_until_it_is_registered_again(tree: MemoryTree) -> None:
    """Situation 88."""
    session, registration = serving(tree)
    session.close()
    other = MemoryStore(tree)
    register(other, ZNODES, ELSEWHERE)
    session.renew()
    assert session.tried.wait(DEADLINE_S)
    assert registration.problem() == "its ZooKeeper session was lost, and it has not registered again yet"
    other.close()
    await_registering()
    assert registration.problem() == ""


def test_a_session_that_is_lost_during_the_registration_counts_as_lost(tree: MemoryTree) -> None:
    class Fragile(Session):
        def create(self, path: str, value: bytes = b"", **options: bool) -> None:
            super().create(path, value, **options)
            self.session = replace(self.session, lost=self.session.lost + 1)

    registration = Registration(Fragile(tree), ZNODES, HERE, patience_s=1.0)  # type: ignore[arg-type]
    registration.keep()
    assert registration.problem().startswith("its ZooKeeper session was lost")


def test_a_short_silence_of_zookeeper_leaves_the_registration_and_one_as_long_as_a_session_may_end_it(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    session.session = replace(session.session, is_connected=False, changed_s=time.monotonic() - 5.0)
    assert registration.problem() == ""
    session.session = replace(session.session, changed_s=time.monotonic() - 12.0)
    assert registration.problem() == "there has been no connection to ZooKeeper for 12 s, so its registration may be gone"
