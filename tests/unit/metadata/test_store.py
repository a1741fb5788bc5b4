"""The contract of MetadataStore, held against the store in memory; tests/cluster holds a real ZooKeeper against it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from bk_spark.errors import ConfigError
from bk_spark.metadata.store import (
    ANY_VERSION,
    MAX_TRANSACTION_BYTES,
    MAX_VALUE_BYTES,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetValue,
    TransactionFailedError,
)
from tests.memory_store import MemoryStore, MemoryTree

Connect = Callable[[], MetadataStore]
DEADLINE_S = 60.0


@pytest.fixture
def new_session() -> Iterator[Connect]:
    """Opens sessions on one and the same store."""
    opened: list[MetadataStore] = []
    tree = MemoryTree(clock_ms=lambda: 1_700_000_000_000)

    def open_one() -> MetadataStore:
        opened.append(MemoryStore(tree))
        return opened[-1]

    yield open_one
    for session in opened:
        session.close()


@pytest.fixture
def session(new_session: Connect) -> MetadataStore:
    return new_session()


@pytest.fixture
def root(session: MetadataStore) -> str:
    path = f"/contract/{uuid.uuid4().hex}"
    session.ensure_path(path)
    return path


def test_a_created_value_is_read_back_with_version_zero(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", b"one")
    found = session.get(f"{root}/a")
    assert (found.value, found.version, found.children) == (b"one", 0, 0)
    assert found.modified_ms > 1_600_000_000_000


def test_getting_a_missing_path_names_it(session: MetadataStore, root: str) -> None:
    with pytest.raises(NoNodeError) as caught:
        session.get(f"{root}/missing")
    assert caught.value.path == f"{root}/missing"


def test_creating_an_existing_path_is_refused_and_keeps_its_value(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", b"one")
    with pytest.raises(NodeExistsError):
        session.create(f"{root}/a", b"two")
    assert session.get(f"{root}/a").value == b"one"


def test_creating_without_a_parent_is_refused_unless_parents_are_made(session: MetadataStore, root: str) -> None:
    with pytest.raises(NoNodeError):
        session.create(f"{root}/a/b/c", b"x")
    session.create(f"{root}/a/b/c", b"x", make_parents=True)
    assert session.get(f"{root}/a/b/c").value == b"x"
    assert session.get(f"{root}/a/b").children == 1


def test_making_parents_does_not_hide_that_the_path_exists(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a/b", b"x", make_parents=True)
    with pytest.raises(NodeExistsError):
        session.create(f"{root}/a/b", b"y", make_parents=True)


def test_a_value_is_replaced_only_at_its_version(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", b"one")
    assert session.set(f"{root}/a", b"two", 0) == 1
    with pytest.raises(BadVersionError):
        session.set(f"{root}/a", b"three", 0)
    assert (session.get(f"{root}/a").value, session.get(f"{root}/a").version) == (b"two", 1)


def test_a_negative_version_matches_nothing(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", b"one")
    with pytest.raises(BadVersionError):
        session.set(f"{root}/a", b"two", -1)
    with pytest.raises(BadVersionError):
        session.delete(f"{root}/a", -1)
    with pytest.raises(TransactionFailedError) as caught:
        session.transaction([Check(root, ANY_VERSION), SetValue(f"{root}/a", b"two", -1)])
    assert (caught.value.index, type(caught.value.reason)) == (1, BadVersionError)
    assert session.get(f"{root}/a").value == b"one"


def test_setting_a_missing_path_is_refused(session: MetadataStore, root: str) -> None:
    with pytest.raises(NoNodeError):
        session.set(f"{root}/missing", b"x", 0)


def test_deletion_obeys_version_children_and_absence(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a/b", b"x", make_parents=True)
    with pytest.raises(NotEmptyError):
        session.delete(f"{root}/a", ANY_VERSION)
    with pytest.raises(BadVersionError):
        session.delete(f"{root}/a/b", 7)
    session.delete(f"{root}/a/b", 0)
    session.delete(f"{root}/a", ANY_VERSION)
    with pytest.raises(NoNodeError):
        session.delete(f"{root}/a", ANY_VERSION)


def test_children_are_the_sorted_names_right_below(session: MetadataStore, root: str) -> None:
    for name in ("b", "a", "c/d"):
        session.create(f"{root}/{name}", make_parents=True)
    assert session.children(root) == ["a", "b", "c"]
    assert session.children(f"{root}/a") == []
    with pytest.raises(NoNodeError):
        session.children(f"{root}/missing")


def test_many_values_come_in_the_order_asked_with_none_for_absent_ones(session: MetadataStore, root: str) -> None:
    for number in range(0, 400, 2):
        session.create(f"{root}/{number}", str(number).encode())
    found = session.get_many([f"{root}/{number}" for number in range(400)])
    expected = [str(number).encode() if number % 2 == 0 else None for number in range(400)]
    assert [one and one.value for one in found] == expected
    assert session.get_many([]) == []


def test_sequential_numbers_rise_and_are_never_given_twice(new_session: Connect, root: str) -> None:
    sessions = [new_session(), new_session()]
    paths = [sessions[number % 2].create_sequential(f"{root}/ID-", b"x") for number in range(4)]
    numbers = [int(path[-10:]) for path in paths]
    assert numbers == sorted(set(numbers))
    assert paths[0].startswith(f"{root}/ID-")
    sessions[0].delete(paths[3], ANY_VERSION)
    assert int(sessions[1].create_sequential(f"{root}/ID-")[-10:]) > numbers[3]


def test_a_sequential_path_without_a_parent_is_refused(session: MetadataStore, root: str) -> None:
    with pytest.raises(NoNodeError):
        session.create_sequential(f"{root}/missing/ID-")


def test_an_ephemeral_path_goes_with_its_session_and_no_other(new_session: Connect, root: str) -> None:
    owner, other = new_session(), new_session()
    owner.create(f"{root}/e", b"x", ephemeral=True)
    owner.create(f"{root}/p", b"x")
    sequential = owner.create_sequential(f"{root}/s-", ephemeral=True)
    new_session().close()
    assert other.get(f"{root}/e").value == b"x"
    owner.close()
    other.sync(root)
    assert other.children(root) == ["p"]
    assert sequential.startswith(f"{root}/s-")


def test_ensuring_a_path_keeps_what_is_there(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", b"kept")
    session.ensure_path(f"{root}/a/b/c")
    session.ensure_path(f"{root}/a/b/c")
    assert session.get(f"{root}/a").value == b"kept"
    assert session.children(f"{root}/a/b") == ["c"]


def test_a_transaction_does_all_operations(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/set", b"old")
    session.create(f"{root}/gone")
    session.transaction(
        [
            Check(f"{root}/set", 0),
            SetValue(f"{root}/set", b"new", 0),
            Delete(f"{root}/gone", ANY_VERSION),
            Create(f"{root}/made", b"x"),
            Create(f"{root}/made/below", b"y"),
        ]
    )
    assert session.children(root) == ["made", "set"]
    assert (session.get(f"{root}/set").value, session.get(f"{root}/made/below").value) == (b"new", b"y")
    session.transaction([])


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Check("/a", 9), BadVersionError),
        (Check("/missing", ANY_VERSION), NoNodeError),
        (SetValue("/a", b"z", 9), BadVersionError),
        (Create("/a"), NodeExistsError),
        (Create("/missing/b"), NoNodeError),
        (Delete("/a", 9), BadVersionError),
        (Delete("/full", ANY_VERSION), NotEmptyError),
        (Delete("/missing", ANY_VERSION), NoNodeError),
    ],
)
def test_a_refused_transaction_changes_nothing_and_names_the_operation(
    session: MetadataStore, root: str, operation: Check | SetValue | Create | Delete, reason: type[Exception]
) -> None:
    session.create(f"{root}/a", b"one")
    session.create(f"{root}/full/b", make_parents=True)
    below = type(operation)(**{**_fields(operation), "path": root + operation.path})
    with pytest.raises(TransactionFailedError) as caught:
        session.transaction([Create(f"{root}/new"), below, SetValue(f"{root}/a", b"two", 0)])
    assert (caught.value.index, type(caught.value.reason)) == (1, reason)
    assert caught.value.reason.path == below.path
    assert session.children(root) == ["a", "full"]
    assert session.get(f"{root}/a").value == b"one"


def test_a_value_at_the_limit_is_stored_and_one_above_it_is_refused_by_name(session: MetadataStore, root: str) -> None:
    session.create(f"{root}/a", bytes(MAX_VALUE_BYTES))
    for attempt in (
        lambda: session.create(f"{root}/b", bytes(MAX_VALUE_BYTES + 1)),
        lambda: session.create_sequential(f"{root}/b", bytes(MAX_VALUE_BYTES + 1)),
        lambda: session.set(f"{root}/a", bytes(MAX_VALUE_BYTES + 1), 0),
        lambda: session.transaction([Create(f"{root}/b", bytes(MAX_VALUE_BYTES + 1))]),
    ):
        with pytest.raises(ConfigError, match=f"value at {root}/.* at most {MAX_VALUE_BYTES}"):
            attempt()
    assert session.children(root) == ["a"]


def test_a_transaction_at_the_limit_is_done_and_one_above_it_is_refused(session: MetadataStore, root: str) -> None:
    names = [f"{root}/{number:03d}" for number in range(MAX_TRANSACTION_BYTES // 16384)]
    session.transaction([Create(name, bytes(16384 - len(name))) for name in names])
    with pytest.raises(ConfigError, match=f"transaction of 60 operations.* at most {MAX_TRANSACTION_BYTES}: split it"):
        session.transaction([SetValue(name, bytes(16385 - len(name)), 0) for name in names])


def test_a_watch_reports_each_change_of_the_names_below(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    changed = threading.Semaphore(0)
    watcher.watch_children(root, changed.release)
    for change in (
        lambda: other.create(f"{root}/a"),
        lambda: other.create(f"{root}/e", ephemeral=True),
        lambda: other.delete(f"{root}/a", ANY_VERSION),
        lambda: other.transaction([Create(f"{root}/t")]),
        other.close,
    ):
        change()
        assert changed.acquire(timeout=DEADLINE_S)
        watcher.sync(root)
    assert watcher.children(root) == ["t"]


def test_a_watch_sees_in_its_callback_what_it_reports(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    seen: list[list[str]] = []
    complete = threading.Event()

    def look() -> None:
        seen.append(watcher.children(root))
        if len(seen[-1]) == 50:
            complete.set()

    watcher.watch_children(root, look)
    for number in range(50):
        other.create(f"{root}/{number}")
    assert complete.wait(DEADLINE_S)


def test_a_watch_may_be_set_before_the_path_is_there(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    changed = threading.Semaphore(0)
    watcher.watch_children(f"{root}/later", changed.release)
    other.create(f"{root}/later/a", make_parents=True)
    assert changed.acquire(timeout=DEADLINE_S)


def test_a_change_of_a_value_or_deeper_down_is_not_reported(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    other.create(f"{root}/a", b"x")
    calls: list[int] = []
    marked = threading.Event()
    watcher.watch_children(root, lambda: calls.append(1))
    watcher.watch_children(f"{root}/a", marked.set)
    other.set(f"{root}/a", b"y", 0)
    other.create(f"{root}/a/deeper")
    assert marked.wait(DEADLINE_S)
    assert calls == []


def test_a_watch_of_a_value_reports_its_changes_and_that_the_path_comes_and_goes(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    changed = threading.Semaphore(0)
    watcher.watch(f"{root}/a", changed.release)
    for change in (
        lambda: other.create(f"{root}/a", b"0"),
        lambda: other.set(f"{root}/a", b"1", 0),
        lambda: other.transaction([SetValue(f"{root}/a", b"2", 1)]),
        lambda: other.delete(f"{root}/a", ANY_VERSION),
        lambda: other.create(f"{root}/a", b"3", ephemeral=True),
        other.close,
    ):
        change()
        assert changed.acquire(timeout=DEADLINE_S)
        watcher.sync(root)


def test_a_watch_of_a_value_is_quiet_about_others_and_once_it_was_ended(new_session: Connect, root: str) -> None:
    watcher, other = new_session(), new_session()
    other.create(f"{root}/a", b"x")
    calls: list[int] = []
    marked = threading.Semaphore(0)
    watcher.watch(f"{root}/a", lambda: calls.append(1))()
    watcher.watch(f"{root}/b", lambda: calls.append(2))
    watcher.watch(f"{root}/a", marked.release)
    other.create(f"{root}/a/deeper")
    other.set(f"{root}/a", b"y", 0)
    assert marked.acquire(timeout=DEADLINE_S)
    watcher.sync(root)
    other.set(f"{root}/a", b"z", 1)
    assert marked.acquire(timeout=DEADLINE_S)
    assert calls == []


def _fields(operation: object) -> dict[str, object]:
    return {name: getattr(operation, name) for name in type(operation).__slots__}  # type: ignore[attr-defined]
