"""A serving bookie stays registered, whatever happens to its ZooKeeper sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from bk_spark.bookie import process
from bk_spark.bookie.process import Registration
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata_store import MemoryStore, MemoryTree
from bk_spark.registration import BookieAddress, initialise_cluster, lookup, register
from bk_spark.znodes import Znodes

ZNODES = Znodes("/ledgers")
HERE = BookieAddress("b1", "here", 1, "/rack-1")
ELSEWHERE = BookieAddress("b1", "elsewhere", 2)


class Session(MemoryStore):
    """A session in memory that can be renewed; its next creations can fail."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self._callbacks: list[Callable[[], None]] = []
        self.failing_creations = 0
        self.tried = threading.Event()

    def on_new_session(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def renew(self) -> threading.Thread:
        """The old session's ephemeral paths go, and a new session's first thread reports it."""
        self.close()
        thread = threading.Thread(target=lambda: [callback() for callback in self._callbacks], daemon=True)
        thread.start()
        return thread

    def create(self, path: str, value: bytes = b"", **options: bool) -> None:
        self.tried.set()
        if self.failing_creations:
            self.failing_creations -= 1
            raise MetadataUnavailableError(self.uri, "no answer")
        super().create(path, value, **options)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> MemoryTree:
    monkeypatch.setattr(process, "RETRY_S", 0.01)
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
    session.renew().join()
    assert found(tree) == HERE


def test_a_registration_again_that_meets_another_one_is_tried_until_that_is_gone(tree: MemoryTree) -> None:
    session, _ = serving(tree)
    session.close()
    other = MemoryStore(tree)
    register(other, ZNODES, ELSEWHERE)
    registering = session.renew()
    assert session.tried.wait(10)
    assert found(tree) == ELSEWHERE
    other.close()
    registering.join(10)
    assert found(tree) == HERE


def test_a_registration_again_without_an_answer_is_tried_again(tree: MemoryTree) -> None:
    session, _ = serving(tree)
    session.failing_creations = 3
    session.renew().join(10)
    assert found(tree) == HERE


def test_a_bookie_that_stops_gives_up_registering_again(tree: MemoryTree) -> None:
    session, registration = serving(tree)
    session.close()
    register(MemoryStore(tree), ZNODES, ELSEWHERE)
    registering = session.renew()
    assert session.tried.wait(10)
    registration.stop_waiting()
    registering.join(10)
    assert not registering.is_alive()
    assert found(tree) == ELSEWHERE
