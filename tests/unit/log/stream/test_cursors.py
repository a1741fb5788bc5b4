"""Cursors: published, seen by others, bounded, and gone with a stream that has no name."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, CorruptionError, NoSuchLogError
from bk_spark.log.stored.values import Head
from bk_spark.log.stream import cursors as log_cursors
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.positions import StreamPosition, behind

HERE, THERE = StreamPosition(3, 0, 7, 12), StreamPosition(4, 1, 9, 0)


@pytest.fixture
def uid(world):
    return world.logs.open("orders", create=True)


def seen(world, uid):
    return [(one.name, one.position, one.row, one.is_named) for one in world.logs.cursors.all("orders", uid)]


def test_a_cursor_replaces_the_one_of_its_name_and_all_are_listed_by_name(world, uid):
    cursors = world.log_store(world.new_session()).cursors
    cursors.publish("orders", uid, Cursor("copy", HERE, 10, is_named=True))
    cursors.publish("orders", uid, Cursor("a/ü", behind(2), 5, is_named=False))
    cursors.publish("orders", uid, Cursor("copy", THERE, 20, is_named=True))
    assert seen(world, uid) == [("a/ü", behind(2), 5, False), ("copy", THERE, 20, True)]
    assert all(one.time_ms > 0 for one in world.logs.cursors.all("orders", uid))


def test_a_cursor_without_a_name_of_its_own_goes_with_the_session_and_a_named_one_stays(world, uid):
    session = world.new_session()
    cursors = world.log_store(session).cursors
    cursors.publish("orders", uid, Cursor("named", HERE, 1, is_named=True))
    cursors.publish("orders", uid, Cursor("random", HERE, 1, is_named=False))
    session.close()
    assert [name for name, *_ in seen(world, uid)] == ["named"]


def test_rows_behind_are_counted_to_the_end_of_the_closed_ledgers_and_never_below_none():
    cursor = Cursor("c", HERE, 90, is_named=True)
    assert [cursor.lag(Head("orders", end_row=rows)) for rows in (80, 90, 100)] == [0, 0, 10]


def test_the_number_of_cursors_is_bounded_and_known_ones_go_on(world, uid, monkeypatch):
    monkeypatch.setattr(log_cursors, "MAX_CURSORS", 1)
    world.logs.cursors.publish("orders", uid, Cursor("one", HERE, 1, is_named=True))
    with pytest.raises(ConfigError, match="number of cursors of log 'orders' is 1: it is the maximum: remove some first"):
        world.logs.cursors.publish("orders", uid, Cursor("two", HERE, 1, is_named=True))
    world.logs.cursors.publish("orders", uid, Cursor("one", THERE, 2, is_named=True))
    world.logs.cursors.remove("orders", uid, "one")
    world.logs.cursors.publish("orders", uid, Cursor("two", HERE, 1, is_named=True))
    with pytest.raises(ConfigError, match="log 'orders' has no such cursor"):
        world.logs.cursors.remove("orders", uid, "one")


def test_no_cursor_brings_a_deleted_log_back(world, uid):
    """Log rule 10."""
    world.logs.cursors.publish("orders", uid, Cursor("one", HERE, 1, is_named=True))
    world.logs.deleter.delete("orders")
    with pytest.raises(NoSuchLogError):
        world.logs.cursors.publish("orders", uid, Cursor("one", HERE, 1, is_named=True))
    with pytest.raises(NoSuchLogError):
        world.logs.cursors.all("orders", uid)
    assert world.store.get_many([world.paths(uid).root]) == [None]


def test_two_queries_that_publish_one_name_at_once_both_succeed(world, uid):
    store, logs = world.scripted()
    other = Cursor("one", THERE, 2, is_named=True)
    real, beaten = store.store.get, []

    def get(path):
        found = real(path)
        if not beaten:
            beaten.append(path)
            world.logs.cursors.publish("orders", uid, other)
        return found

    world.logs.cursors.publish("orders", uid, Cursor("one", HERE, 1, is_named=True))
    store.store.get = get
    logs.cursors.publish("orders", uid, Cursor("one", HERE, 3, is_named=True))
    assert seen(world, uid) == [("one", HERE, 3, True)]


def test_a_damaged_cursor_is_named(world, uid):
    world.store.create(world.paths(uid).cursor("bad"), b"{}")
    with pytest.raises(CorruptionError, match="a cursor of log 'orders' is damaged"):
        world.logs.cursors.all("orders", uid)


def test_a_log_that_goes_while_a_cursor_is_published_is_said_to_be_gone(world, uid, monkeypatch):
    """Log rule 10."""
    create = type(world.store).create

    def goes_before(store, *given, **more):
        world.logs.deleter.delete("orders")
        monkeypatch.undo()
        return create(store, *given, **more)

    monkeypatch.setattr(type(world.store), "create", goes_before)
    with pytest.raises(NoSuchLogError):
        world.logs.cursors.publish("orders", uid, Cursor("one", HERE, 1, is_named=True))
