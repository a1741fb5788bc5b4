"""A stream of some lanes: it skips ledgers of others where its stretches are planned, whatever became of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.errors import DataLossError
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommitKind
from bk_spark.log.stream.positions import behind
from tests.unit.log.log_requests import schema_json
from tests.unit.log.stream.stream_world import StreamWorld

EIGHT, TWO = Lanes(("id",), ("integer",), 8), Lanes(("id",), ("integer",), 2)


@pytest.fixture
def world():
    return StreamWorld()


def append(world, *lanes, kind=CommitKind.APPEND, of=EIGHT):
    """A commit of a ledger in each of these lanes."""
    ledgers = [replace(world.plain_ledger(3), lane=lane) for lane in lanes]
    world.commit(kind, ledgers, schema_json=schema_json(id="long"), lanes=of)
    return [one.ledger_id for one in ledgers]


def stretches(world, lanes_of, start=None, overwrites="fail"):
    start = behind(0) if start is None else start
    follower, head = world.follower(overwrites), world.head
    end = follower.newest(head, {}, start).position
    return list(follower.stretches(start, end, head, fail_on_data_loss=True, lanes_of=lanes_of))


def test_only_ledgers_of_the_lanes_are_pieces(world):
    first, second = append(world, 0, 3, 7), append(world, 3, 5)
    assert [one.ledger_id for one in stretches(world, lambda _: {3})] == [first[1], second[0]]
    assert [one.ledger_id for one in stretches(world, lambda _: {0, 5})] == [first[0], second[1]]
    assert len(stretches(world, lambda _: None)) == 5
    assert stretches(world, lambda _: frozenset()) == []


def test_each_version_is_asked_for_its_lanes_once(world):
    append(world, 0, 3, 7)
    append(world, 0, 1, kind=CommitKind.OVERWRITE, of=TWO)
    asked = []
    found = stretches(world, lambda version: asked.append((version.version, version.lanes)) or {0}, overwrites="read")
    assert [(one.version, one.index) for one in found] == [(1, 0), (2, 0)]
    assert asked == [(1, EIGHT), (2, TWO)]


def test_a_position_behind_a_piece_goes_on_in_the_same_lane(world):
    append(world, 0, 3, 7)
    [stretch] = stretches(world, lambda _: {3})
    [late] = [one.ledger_id for one in stretches(world, lambda _: {7}, start=stretch.position_after)]
    assert late == world.listed("orders")[2]
    assert stretches(world, lambda _: {3}, start=stretch.position_after) == []


@pytest.mark.parametrize(("truncated", "is_loss"), [(0, False), (3, True)])
def test_only_the_truncation_of_its_own_lanes_is_a_loss(world, truncated, is_loss):
    append(world, truncated)
    kept = append(world, 3)
    world.truncate(kept[0])
    if is_loss:
        with pytest.raises(DataLossError):
            stretches(world, lambda _: {3})
    else:
        assert [one.ledger_id for one in stretches(world, lambda _: {3})] == kept
