"""What is held in memory is what the store has, within the bound; after it nothing is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import Queue

import pytest

from bk_spark.errors import MetadataUnavailableError
from bk_spark.gateway.access_records import AccessChange
from bk_spark.gateway.held_access import HeldAccess
from bk_spark.gateway.rights import Right, parse_identity
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.gateway.access_world import Operator

DEADLINE_S = 20.0
ETL = parse_identity("token:etl")


class World:
    """A gateway's memory of what an operator changes. Looks follow the watch alone, and the clock moves when a test says so."""

    def __init__(self) -> None:
        tree = MemoryTree(lambda: 1_000_000)
        znodes = Znodes("/ledgers")
        self.operator = Operator(MemoryStore(tree), znodes)
        self.reader = Operator(MemoryStore(tree), znodes)
        self.now_s = 1_000.0
        self.looks: Queue[Sequence[AccessChange]] = Queue()
        self.operator.grant("token:etl", "orders", Right.READ)
        self.held = HeldAccess(self.reader.access, self.looks.put, confirm_s=3600.0, hold_s=10.0, clock=lambda: self.now_s)
        assert self.look() == ()

    def look(self) -> Sequence[AccessChange]:
        """Wait for the next look."""
        return self.looks.get(timeout=DEADLINE_S)

    def may(self, right: Right, log: str) -> bool:
        return self.held.now().rights.allows(ETL, right, log)


@pytest.fixture
def world() -> Iterator[World]:
    built = World()
    yield built
    built.held.close()


def test_what_is_there_at_the_start_is_held(world: World) -> None:
    assert (world.may(Right.READ, "orders"), world.may(Right.APPEND, "orders")) == (True, False)


def test_a_change_holds_after_the_event_of_the_watch_and_is_told_once(world: World) -> None:
    made = world.operator.create("etl")
    [change] = world.look()
    assert [one.token_id for one in change.created] == [made.token_id]
    assert made.token_id in world.held.now().content.tokens
    world.operator.remove("token:etl", "orders")
    [change] = world.look()
    assert len(change.removed) == 1
    assert not world.may(Right.READ, "orders")


def test_what_was_confirmed_holds_for_its_time_and_then_nothing_is_known(world: World) -> None:
    world.now_s += 10.0
    assert world.may(Right.READ, "orders")
    world.now_s += 0.1
    with pytest.raises(MetadataUnavailableError, match="confirmed last 10 s ago, and that holds 10 s") as caught:
        world.held.now()
    assert caught.value.retryable


def test_while_the_store_is_away_the_last_answer_holds_and_no_longer_and_the_reason_is_named(world: World) -> None:
    world.reader.store.is_away = True
    world.operator.remove("token:etl", "orders")
    assert world.look() == ()
    assert world.may(Right.READ, "orders")
    world.now_s += 11.0
    with pytest.raises(MetadataUnavailableError, match="connection lost"):
        world.held.now()
    world.reader.store.is_away = False
    world.operator.grant("token:etl", "b", Right.READ)
    assert len(world.look()) == 2
    assert (world.may(Right.READ, "orders"), world.may(Right.READ, "b")) == (False, True)


def test_a_look_holds_from_its_begin_and_not_from_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed while it was under way may not be in it."""
    read = world.reader.access.read

    def slowly() -> object:
        content = read()
        world.now_s += 8.0
        return content

    monkeypatch.setattr(world.reader.access, "read", slowly)
    world.operator.grant("token:etl", "b", Right.READ)
    world.look()
    world.now_s += 3.0
    with pytest.raises(MetadataUnavailableError):
        world.held.now()


def test_it_looks_again_and_again_without_an_event() -> None:
    tree, znodes = MemoryTree(lambda: 1), Znodes("/ledgers")
    reader, looks = Operator(MemoryStore(tree), znodes), Queue[object]()
    reader.store.watch = lambda path, on_change: lambda: None  # type: ignore[attr-defined]
    held = HeldAccess(reader.access, looks.put, confirm_s=0.001)
    try:
        for _ in range(3):
            looks.get(timeout=DEADLINE_S)
        Operator(MemoryStore(tree), znodes).grant("token:etl", "orders", Right.READ)
        while not looks.get(timeout=DEADLINE_S):
            pass
        assert held.now().rights.may_see(ETL, "orders")
    finally:
        held.close()


def test_changes_whose_records_could_not_be_read_are_told_by_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = world.reader.access.changes
    calls = []

    def once_away(after: int, until: int) -> list[tuple[int, AccessChange]]:
        calls.append(after)
        if len(calls) == 2:  # the first one follows the change
            raise MetadataUnavailableError("memory://", "connection lost")
        return changes(after, until)

    monkeypatch.setattr(world.reader.access, "changes", once_away)
    world.operator.grant("token:etl", "b", Right.READ)
    assert world.look() == ()
    assert world.may(Right.READ, "b")
    world.operator.grant("token:etl", "c", Right.READ)
    assert [change.granted[0].logs for change in world.look()] == ["b", "c"]


def test_without_the_store_at_the_start_it_does_not_begin() -> None:
    reader = Operator(MemoryStore(MemoryTree(lambda: 1)), Znodes("/ledgers"))
    reader.store.is_away = True
    before = threading.active_count()
    with pytest.raises(MetadataUnavailableError):
        HeldAccess(reader.access)
    assert threading.active_count() == before


def test_its_thread_ends_with_it(world: World) -> None:
    world.held.close()
    assert [thread for thread in threading.enumerate() if thread.name == "bk_spark-access"] == []
