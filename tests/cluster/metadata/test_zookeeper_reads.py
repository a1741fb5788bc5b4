"""Many values in one request to ZooKeeper, and one by one where the server does not know that request."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from bk_spark.errors import MetadataAccessError
from bk_spark.metadata.store import MAX_VALUE_BYTES
from bk_spark.metadata.zookeeper import _TOGETHER, _WINDOW, ZooKeeperStore
from bk_spark.metadata.zookeeper_session import ReadMany

MISSING = "/missing"
UNKNOWN = 99
"""No request of ZooKeeper has this type."""


@pytest.fixture
def place(store: ZooKeeperStore) -> str:
    path = f"/reads-{uuid.uuid4().hex}"
    store.ensure_path(path)
    return path


@pytest.fixture
def sent(store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests of this process by kind."""
    kinds: Counter[str] = Counter()
    call: Callable[..., Any] = KazooClient._call

    def counted(client: KazooClient, request: Any, result: Any) -> Any:
        kinds[type(request).__name__] += 1
        return call(client, request, result)

    monkeypatch.setattr(KazooClient, "_call", counted)
    return kinds


def _written(store: ZooKeeperStore, place: str, count: int) -> list[str]:
    paths = [f"{place}/{number}" for number in range(count)]
    for number, path in enumerate(paths):
        store.create(path, b"value" * (number % 3))
    return paths


@pytest.mark.parametrize("count", [2, _TOGETHER, _TOGETHER + 1, _WINDOW + 1])
def test_values_come_in_their_order_with_what_is_known_of_them_many_in_a_request(
    store: ZooKeeperStore, place: str, sent: Counter[str], count: int
) -> None:
    paths = _written(store, place, count)
    store.set(paths[1], b"another", 0)
    store.create(f"{paths[0]}/child")
    each = [store.get(path) for path in paths]
    sent.clear()
    assert store.get_many(paths) == each
    full, rest = divmod(count, _WINDOW)
    requests = full * (_WINDOW // _TOGETHER) + (-(-rest // _TOGETHER) if rest > 1 else 0)
    assert sent == +Counter(ReadMany=requests, GetData=int(rest == 1))
    assert (each[1].version, each[0].children) == (1, 1)


def test_missing_paths_are_told_apart_from_empty_values(store: ZooKeeperStore, place: str) -> None:
    paths = _written(store, place, 3)
    found = store.get_many([MISSING, paths[0], MISSING, paths[1], MISSING])
    assert [None if one is None else one.value for one in found] == [None, b"", None, b"value", None]
    assert store.get_many([MISSING] * 50) == [None] * 50
    assert store.get_many([]) == []


def test_values_of_the_largest_size_come_together(store: ZooKeeperStore, place: str) -> None:
    """Their answer is far above the limit that ZooKeeper has for requests."""
    values = [bytes([number]) * MAX_VALUE_BYTES for number in range(8)]
    for number, value in enumerate(values):
        store.create(f"{place}/{number}", value)
    found = store.get_many([f"{place}/{number}" for number in range(8)])
    assert [one.value for one in found if one is not None] == values


def test_a_server_that_does_not_know_the_request_is_asked_for_one_value_after_the_other_from_then_on(
    store: ZooKeeperStore, place: str, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper before 3.6, which then closes the connection: the store has another one, and the session lives on."""
    monkeypatch.setattr(ReadMany, "type", UNKNOWN)
    paths = [*_written(store, place, 40), MISSING]
    each = [*map(store.get, paths[:-1]), None]
    sent.clear()
    assert store.get_many(paths) == each
    assert sent["ReadMany"] == 2
    assert store.session.lost == 0
    sent.clear()
    assert store.get_many(paths) == each
    assert sent == Counter(GetData=41)


def test_a_value_that_may_not_be_read_is_named(store: ZooKeeperStore, place: str) -> None:
    paths = _written(store, place, 3)
    store.set_acls([paths[1]], [make_acl("digest", "somebody:hash", all=True)])
    with pytest.raises(MetadataAccessError, match=paths[1]):
        store.get_many(paths)
