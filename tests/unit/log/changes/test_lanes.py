"""What a commit does to the lanes of a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.log_requests import ids, overwrite, replacement, schema_json, write

EIGHT, FOUR = Lanes(("id",), ("integer",), 8), Lanes(("id",), ("integer",), 4)
ROWS = schema_json(id="long")


def ledger(world, lane=0, entries=10):
    return replace(world.plain_ledger(entries), lane=lane)


def append(world, lanes, *ledgers, **more):
    return write(world, "orders", *ledgers, schema_json=ROWS, lanes=lanes, **more)


def compact(world, removed, *added):
    request = CommitRequest(CommitKind.COMPACT, tuple(added), remove=tuple(ids(*removed)))
    return world.logs.commit(world.logs.jobs.begin("orders"), request)


def test_the_first_commit_gives_a_log_its_lanes_and_all_others_keep_them(world):
    a, b = ledger(world, 3), ledger(world, 7)
    assert append(world, EIGHT, a, b).lanes == EIGHT
    assert append(world, EIGHT, ledger(world, 1)).lanes == EIGHT
    assert compact(world, [b], ledger(world, 7)).lanes == EIGHT
    uid = world.logs.names.uid("orders")
    world.logs.truncate("orders", uid, world.listed("orders")[1])
    assert world.logs.reader.snapshot("orders").lanes == world.logs.names.head("orders", uid).lanes == EIGHT
    assert [one.lane for one in world.logs.reader.snapshot("orders").ledgers] == [7, 1]


def test_a_first_commit_without_rows_gives_a_log_its_lanes_too(world):
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, schema_json=ROWS, lanes=EIGHT))
    assert append(world, EIGHT, ledger(world, 3)).lanes == EIGHT


@pytest.mark.parametrize(("before", "after"), [(EIGHT, FOUR), (EIGHT, PLAIN), (PLAIN, EIGHT)])
def test_an_append_of_rows_in_other_lanes_is_refused(world, before, after):
    append(world, before, ledger(world))
    with pytest.raises(MetadataConflictError, match=f"it has {before}, the rows were written for {after}: write them again"):
        append(world, after, ledger(world))
    job = world.logs.jobs.begin("orders")
    nothing = world.logs.commit(job, CommitRequest(CommitKind.APPEND, schema_json=ROWS, lanes=after))
    assert nothing.lanes == before


def test_an_append_notices_an_overwrite_that_came_first(world):
    append(world, EIGHT, ledger(world))
    store, logs = world.scripted()
    store.script = [store.first(lambda: append(world, FOUR, ledger(world), request=overwrite))]
    with pytest.raises(MetadataConflictError, match="it has 4 lanes by id, the rows were written for 8 lanes by id"):
        append(world, EIGHT, ledger(world, 5), logs=logs)


@pytest.mark.parametrize("lanes", [FOUR, PLAIN, EIGHT])
def test_an_overwrite_brings_its_lanes(world, lanes):
    append(world, EIGHT, ledger(world, 6))
    assert append(world, lanes, ledger(world), request=overwrite).lanes == lanes
    assert world.logs.reader.snapshot("orders", 1).lanes == EIGHT


def test_a_ledger_of_a_lane_that_does_not_exist_is_refused(world):
    with pytest.raises(ConfigError, match=r"lane of ledger \d+ is 4: it was written for 4 lanes by id"):
        append(world, FOUR, ledger(world, 4))


def test_a_leader_is_refused_on_a_log_with_lanes(world):
    append(world, EIGHT, ledger(world))
    job = world.logs.jobs.begin("orders")
    request = CommitRequest(CommitKind.APPEND, opened=world.open_ledger(job), schema_json=ROWS)
    says = "the log to lead is 'orders': it has 8 lanes by id, and a leader writes one ledger at a time: append rows"
    with pytest.raises(ConfigError, match=says):
        world.logs.commit_or_abort(job, request)


def test_a_keyed_overwrite_displaces_a_leader(world):
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=world.open_ledger(job)))
    assert append(world, EIGHT, ledger(world, 3), request=overwrite).lanes == EIGHT


def test_a_compaction_keeps_the_rows_of_each_lane(world):
    a, b, c = ledger(world, 2), ledger(world, 2), ledger(world, 5)
    append(world, EIGHT, a, b, c)
    with pytest.raises(ConfigError, match=r"the number of rows by lane .*'orders' puts in the place of \{2: 20, 5: 10\}"):
        compact(world, [a, b, c], ledger(world, 2, 10), ledger(world, 5, 20))
    compact(world, [a, b, c], ledger(world, 2, 20), ledger(world, 5, 10))
    assert [one.lane for one in world.logs.reader.snapshot("orders").ledgers] == [2, 5]


def test_a_replacement_keeps_to_one_lane(world):
    a, b = ledger(world, 2), ledger(world, 5)
    append(world, EIGHT, a, b)
    for removed, lane in (([a], 5), ([a, b], 2)):
        with pytest.raises(ConfigError, match=r"lane of ledger \d+ is \d: it takes the place of ledgers of lane 2"):
            world.logs.commit(world.logs.jobs.begin("orders"), replacement(removed, ledger(world, lane)))
    world.logs.commit(world.logs.jobs.begin("orders"), replacement([a], ledger(world, 2, 3)))
    world.logs.commit(world.logs.jobs.begin("orders"), replacement([b]))
    assert [one.lane for one in world.logs.reader.snapshot("orders").ledgers] == [2]
