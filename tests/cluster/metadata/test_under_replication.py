"""Marks and locks of ledgers that lack copies, on real ZooKeeper: protocol rule 56, situation 83."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.metadata.store import ANY_VERSION, NoNodeError, StoreChange
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.replication.auditor_znodes import AuditorElection
from tests.memory_store import MemoryStore, MemoryTree

WAIT_S = 20.0


@pytest.fixture
def marks(store: ZooKeeperStore, znodes: Znodes) -> UnderReplication:
    return UnderReplication(store, znodes)


@pytest.fixture
def other_store(metadata_uri: str) -> Iterator[ZooKeeperStore]:
    """The session of another process."""
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        yield store


@pytest.fixture
def other(other_store: ZooKeeperStore, znodes: Znodes) -> UnderReplication:
    return UnderReplication(other_store, znodes)


def mark_of(marks: UnderReplication, ledger_id: int) -> Mark:
    mark = marks.mark_of(ledger_id)
    assert mark is not None
    return mark


# --- marks


def test_a_mark_stands_where_apache_bookkeeper_has_it_in_its_text_form(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    assert marks.mark(0xCAFE_0000_FEED, ["bookie-1:3181", "bookie-2:3181"])
    path = f"{znodes.root}/underreplication/ledgers/0000/cafe/0000/feed/urL{0xCAFE_0000_FEED:010d}"
    assert store.get(path).value == b'replica: "bookie-1:3181"\nreplica: "bookie-2:3181"\n'
    assert store.get(f"{znodes.root}/underreplication/LAYOUT").value == b'type: "BASIC"\nversion: 1\n'


def test_a_mark_that_apache_bookkeeper_made_is_read_and_merged_into(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    store.create(znodes.under_replicated(7), b'replica: "b1"\nctime: 1700000000123\nnewer: "field"\n', make_parents=True)
    assert mark_of(marks, 7) == Mark(7, ("b1",), 1700000000123, 0)
    assert not marks.mark(7, ["b2"])
    assert mark_of(marks, 7) == Mark(7, ("b1", "b2"), 1700000000123, 1)


def test_a_second_report_is_merged_keeps_the_time_of_the_first_and_raises_the_version(marks: UnderReplication) -> None:
    """Also one that names nothing new: the worker may have looked before that copy went."""
    assert marks.mark(3, ["b1"])
    first = mark_of(marks, 3)
    assert not marks.mark(3, ["b2", "b1"])
    assert not marks.mark(3, ["b1"])
    assert mark_of(marks, 3) == Mark(3, ("b1", "b2"), first.marked_ms, 2)


def test_what_is_reported_while_a_worker_copies_survives_the_removal_of_the_mark(
    marks: UnderReplication, other: UnderReplication
) -> None:
    """Protocol rule 56; "testManyFailures": the same bookie again, then another one."""
    marks.mark(5, ["b1"])
    assert marks.try_lock(5, "worker")
    for missing in (["b1"], ["b2"]):
        seen = mark_of(marks, 5)
        assert not other.mark(5, missing)
        assert not marks.remove(seen)
    assert mark_of(marks, 5).missing == ("b1", "b2")
    assert marks.remove(mark_of(marks, 5))
    assert marks.mark_of(5) is None


def test_a_mark_that_somebody_else_removed_counts_as_removed(marks: UnderReplication, other: UnderReplication) -> None:
    marks.mark(5, ["b1"])
    mark = mark_of(marks, 5)
    assert other.remove(mark)
    assert marks.remove(mark)


def test_a_mark_made_anew_survives_a_worker_that_lost_its_session_though_versions_begin_anew(
    marks: UnderReplication, other_store: ZooKeeperStore, other: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    """Its guard went with the session; without one the removal at version 0 would take the new mark."""
    other_store.ensure_path(f"{znodes.root}/guards")
    guard = f"{znodes.root}/guards/of-a-session"
    store.create(guard, ephemeral=True)
    marks.mark(5, ["b1"])
    seen = mark_of(marks, 5)
    store.delete(guard, ANY_VERSION)  # the session expires
    other.remove(seen)
    other.mark(5, ["b1"])
    assert mark_of(marks, 5).version == seen.version
    assert not marks.remove(seen, guard)
    assert marks.mark_of(5) is not None


def test_with_the_last_mark_below_them_its_directories_go(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    marks.mark(0x0001_0002, ["b1"])
    marks.mark(0x0001_0003, ["b1"])
    top = znodes.under_replicated_ledgers
    assert marks.remove(mark_of(marks, 0x0001_0002))
    assert store.children(f"{top}/0000/0000/0001") == ["0003"]
    assert marks.remove(mark_of(marks, 0x0001_0003))
    assert store.children(top) == []


def test_marks_and_removals_of_neighbours_at_once_lose_none(
    marks: UnderReplication, other: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    """Directories come and go under those who make and remove marks in them."""

    def come_and_go(one: UnderReplication, ledger_id: int) -> None:
        for _ in range(10):
            assert one.mark(ledger_id, ["b1"])
            assert one.remove(mark_of(one, ledger_id))
        one.mark(ledger_id, ["last"])

    with ThreadPoolExecutor(4) as threads:
        pairs = zip([marks, other, marks, other], range(4), strict=True)
        for done in [threads.submit(come_and_go, one, ledger_id) for one, ledger_id in pairs]:
            done.result()
    assert [(mark.ledger_id, mark.missing) for mark in marks.marks()] == [(n, ("last",)) for n in range(4)]
    for mark in list(marks.marks()):
        assert marks.remove(mark)
    assert store.children(znodes.under_replicated_ledgers) == []


def test_many_ledgers_are_marked_at_once_new_ones_and_known_ones(marks: UnderReplication) -> None:
    marks.mark(20, ["b0"])
    assert marks.mark_many({ledger_id: ["b1"] for ledger_id in range(450)}) == 449
    found = {mark.ledger_id: mark.missing for mark in marks.marks()}
    assert list(found) == list(range(450))
    assert found[20] == ("b0", "b1")
    assert found[449] == ("b1",)
    assert marks.count() == 450


@pytest.mark.parametrize("races", [1, 2])
def test_many_marks_are_made_where_others_make_some_of_them_meanwhile(
    marks: UnderReplication, other: UnderReplication, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, races: int
) -> None:
    """The transaction fails as a whole: the marks are read, and then made in one again, or one by one."""
    transaction, others = store.transaction, [2, 3][:races]

    def race(changes: Sequence[StoreChange]) -> None:
        if others:
            other.mark(others.pop(0), ["b2"])
        transaction(changes)

    monkeypatch.setattr(store, "transaction", race)
    assert marks.mark_many({ledger_id: ["b1"] for ledger_id in range(4)}) == 4 - races
    assert [mark_of(marks, one).missing for one in (2, 3)] == [("b2", "b1"), ("b2", "b1") if races == 2 else ("b1",)]
    assert marks.count() == 4


def test_marks_are_made_and_counted_without_reading_marks_or_listing_their_neighbours(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may have 65,536 of them: who lists it for each 200 marks takes more time with each."""
    marks.mark(70_000, ["b0"])
    listed: list[str] = []
    children = store.children
    monkeypatch.setattr(store, "children", lambda path: (listed.append(path), children(path))[1])
    reads = store.get_many
    monkeypatch.setattr(store, "get_many", lambda paths: (listed.extend(paths), reads(paths))[1])
    assert marks.mark_many({ledger_id: ["b1"] for ledger_id in range(65_000, 66_000)}) == 1_000
    assert listed == []
    assert marks.count() == 1_001
    assert max(path.count("/") for path in listed) == znodes.under_replicated(1).count("/") - 2


def test_the_marks_of_ledgers_that_are_left_out_are_not_read(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those that a worker waits to try again, which may be a million."""
    marks.mark_many({ledger_id: ["b1"] for ledger_id in range(10)})
    read: list[str] = []
    reads = store.get_many
    monkeypatch.setattr(store, "get_many", lambda paths: (read.extend(paths), reads(paths))[1])
    assert [mark.ledger_id for mark in marks.marks(set(range(1, 9)))] == [0, 9]
    assert read == [znodes.under_replicated(0), znodes.under_replicated(9)]
    assert list(marks.marked_ids()) == list(range(10))


def test_some_marked_ledgers_are_found_by_chance_without_reading_a_mark(
    marks: UnderReplication, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = {1, 2, 3, 0x1_0000, 0x2_0000}
    marks.mark_many({ledger_id: ["b1"] for ledger_id in marked})
    monkeypatch.setattr(store, "get_many", lambda paths: pytest.fail("a mark was read"))
    chance = random.Random(7).randrange
    assert set(marks.some_ids(9, chance)) == marked
    assert set(marks.some_ids(9, chance, {2, 0x1_0000})) == marked - {2, 0x1_0000}
    assert marks.some_ids(0, chance) == []
    drawn = [marks.some_ids(2, chance) for _ in range(200)]
    assert all(len(set(one)) == 2 for one in drawn)
    assert {ledger_id for one in drawn for ledger_id in one} == marked


def test_locked_ledgers_are_known_without_reading_a_lock(marks: UnderReplication, store: ZooKeeperStore) -> None:
    assert marks.locked_ids() == set()
    assert marks.try_lock(7, "w1")
    assert marks.try_lock(9, "w1")
    assert marks.locked_ids() == {7, 9}
    marks.unlock(7)
    assert marks.locked_ids() == {9}
    marks.unlock(9)


def test_each_candidate_for_auditor_counts_once(marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes) -> None:
    assert marks.candidates() == 0
    for name in ("w1", "w2"):
        AuditorElection(store, znodes, name).is_elected()
    assert marks.candidates() == 2


@pytest.mark.parametrize("many", [False, True])
def test_a_directory_that_goes_right_behind_its_creation_is_made_again(
    marks: UnderReplication, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """Its last mark went; the store then misses it while it makes what belongs below."""
    marks.mark(0x1_0000, ["b1"])

    def vanish(path: str) -> None:
        monkeypatch.undo()
        raise NoNodeError(path)

    monkeypatch.setattr(store, "ensure_path", vanish)
    assert marks.mark_many({1: ["b1"]}) == 1 if many else marks.mark(1, ["b1"])
    assert mark_of(marks, 1).missing == ("b1",)


def test_what_is_no_mark_is_left_out_and_replaced_by_the_next_report(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    marks.mark(1, ["b1"])
    store.create(znodes.under_replicated(2), b"\xff{", make_parents=True)
    assert [mark.ledger_id for mark in marks.marks()] == [1]
    with pytest.raises(CorruptionError, match=r"urL0000000002 is damaged"):
        marks.mark_of(2)
    assert not marks.mark(2, ["b3"])
    assert mark_of(marks, 2).missing == ("b3",)


def test_a_directory_left_over_without_its_mark_is_no_mark_and_no_hindrance(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    """Apache BookKeeper removes mark and directory one after the other."""
    store.ensure_path(znodes.under_replicated(9).rsplit("/", 1)[0])
    assert list(marks.marks()) == []
    assert marks.mark(9, ["b1"])
    store.create(f"{znodes.under_replicated(9)}-beside")
    assert marks.remove(mark_of(marks, 9))
    assert marks.mark_of(9) is None


def test_marks_of_another_layout_are_refused(store: ZooKeeperStore, znodes: Znodes) -> None:
    store.create(znodes.under_replication_layout, b'type: "FANCY"\nversion: 2\n', make_parents=True)
    with pytest.raises(ConfigError, match="the layout of marks"):
        UnderReplication(store, znodes).mark(1, ["b1"])


# --- locks


def test_one_of_two_workers_gets_a_lock_and_the_other_one_after_it_was_given_back(
    marks: UnderReplication, other: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    assert marks.try_lock(4, "host:1")
    assert not other.try_lock(4, "host:2")
    other.unlock(4)
    assert marks.holds_lock(4)
    assert other.locks() == {4: "host:1"}
    assert store.get(znodes.under_replicated_lock(4)).value.startswith(b'bookieId: "host:1 #')
    marks.unlock(4)
    assert not marks.holds_lock(4)
    assert other.try_lock(4, "host:2")


def test_of_many_threads_of_two_processes_exactly_one_holds_a_lock(marks: UnderReplication, other: UnderReplication) -> None:
    start = threading.Barrier(8)

    def take(number: int) -> bool:
        start.wait()
        return (marks, other)[number % 2].try_lock(6, f"thread {number}")

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(8))) == 1


def test_a_lock_goes_with_the_session_of_its_holder_who_learns_of_it(
    marks: UnderReplication, metadata_uri: str, znodes: Znodes
) -> None:
    """Situation 83: release on session loss."""
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as dying:
        holder = UnderReplication(dying, znodes)
        assert holder.try_lock(8, "dying")
        assert not marks.try_lock(8, "heir")
    assert marks.try_lock(8, "heir")
    assert marks.locks() == {8: "heir"}


def test_who_lost_the_lock_with_the_session_neither_holds_it_nor_takes_it_from_the_next_one(
    marks: UnderReplication, znodes: Znodes, store: ZooKeeperStore, other: UnderReplication
) -> None:
    assert marks.try_lock(8, "late")
    store.delete(znodes.under_replicated_lock(8), ANY_VERSION)  # as the server does when it expires the session
    assert not marks.holds_lock(8)
    assert other.try_lock(8, "heir")
    assert not marks.holds_lock(8)
    assert not marks.try_lock(8, "another thread, while the first one still believes in its lock")
    marks.unlock(8)
    assert other.holds_lock(8)
    assert not marks.try_lock(8, "late")


def test_a_lock_whose_creation_was_never_answered_is_its_makers_all_the_same() -> None:
    tree = MemoryTree(lambda: 0)
    store, znodes = MemoryStore(tree), Znodes("/ledgers")
    marks = UnderReplication(store, znodes)
    create = store.create

    def lose_the_answer(path: str, value: bytes = b"", **options: bool) -> None:
        create(path, value, **options)
        if "/locks/" in path:
            raise ConnectionError

    store.create = lose_the_answer  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        marks.try_lock(1, "worker")
    store.create = create  # type: ignore[method-assign]
    assert not UnderReplication(MemoryStore(tree), znodes).try_lock(1, "other")
    assert marks.try_lock(1, "worker")
    assert not marks.try_lock(1, "another thread")


def test_a_lock_that_could_not_be_given_back_can_be_taken_again_by_who_had_it() -> None:
    tree = MemoryTree(lambda: 0)
    store, znodes = MemoryStore(tree), Znodes("/ledgers")
    marks = UnderReplication(store, znodes)
    assert marks.try_lock(1, "worker")
    with pytest.MonkeyPatch.context() as cut_off:
        cut_off.setattr(store, "delete", lambda *_: (_ for _ in ()).throw(ConnectionError()))
        with pytest.raises(ConnectionError):
            marks.unlock(1)
    assert not UnderReplication(MemoryStore(tree), znodes).try_lock(1, "other")
    assert marks.try_lock(1, "worker")
    marks.unlock(1)
    assert marks.locks() == {}


# --- the switch, and watching


def test_it_is_enabled_until_it_is_disabled_for_all_and_both_may_be_repeated(
    marks: UnderReplication, other: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    assert marks.is_enabled()
    for _ in range(2):
        marks.disable()
        assert not other.is_enabled()
    assert store.get(f"{znodes.root}/underreplication/disable").value == b""
    for _ in range(2):
        other.enable()
        assert marks.is_enabled()


def test_who_watches_is_told_of_marks_that_came_or_grew_and_of_the_switch(
    marks: UnderReplication, other: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    told = threading.Event()
    other.watch(told.set)
    for switch in (marks.disable, marks.enable):
        told.clear()
        switch()
        assert told.wait(WAIT_S)
    news: list[Callable[[], object]] = [
        lambda: marks.mark(1, ["b1"]),
        lambda: marks.mark(1, ["b2"]),
        lambda: marks.mark_many({2: ["b1"], 3: ["b1"]}),
    ]
    for number, change in enumerate(news, 1):
        told.clear()
        change()
        assert told.wait(WAIT_S)
        assert store.get(znodes.under_replication_changes).version == number


def test_nothing_is_made_in_the_store_by_those_who_only_look(
    marks: UnderReplication, store: ZooKeeperStore, znodes: Znodes
) -> None:
    assert (list(marks.marks()), marks.count(), marks.locks(), marks.mark_of(1)) == ([], 0, {}, None)
    with pytest.raises(NoNodeError):
        store.get(znodes.under_replication)
