"""Streams over logs against a plain list of ledgers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.log.stored.values import CommitKind
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.budget import examples
from tests.unit.log.stream.stream_world import NAME, Stream, StreamWorld, entries, entries_of


def counted(versions):
    """Store calls of one planning of the newest micro-batch."""
    world = StreamWorld()
    ledgers = [world.plain_ledger(1) for _ in range(versions)]
    for one in ledgers:
        world.commit(CommitKind.APPEND, [one])
    world.append(2)
    store, logs = world.scripted()
    head = world.head
    follower = world.follower(logs=logs)
    start = StreamPosition(versions, 0, ledgers[-1].ledger_id, 1)
    newest = follower.newest(head, {}, start)
    stretches = list(follower.stretches(start, newest.position, head, fail_on_data_loss=True))
    assert len(list(entries_of(stretches))) == 2
    return len(store.calls), sum(len(what) for name, what in store.calls if name == "get_many")


def test_planning_costs_the_same_in_a_log_of_5_versions_and_of_3000():
    assert counted(5) == counted(3000)


OPERATIONS = ("append", "empty", "compact", "overwrite", "replace", "open", "roll", "confirm", "confirm", "close", "vacuum")


@examples(60)
@given(
    operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 3), st.booleans()), max_size=25),
)
def test_a_stream_reads_every_entry_that_was_appended_once_and_in_order_whenever_it_looks(operations):
    """Log rules 2 and 6: against a plain list of all ledgers, without those that replaced content and are to be skipped."""
    world, appended = StreamWorld(), []
    often, seldom = (Stream(world, behind(0), "skip") for _ in range(2))
    for kind, number, looks in operations:
        if kind == "vacuum":
            seldom.poll()
            often.poll()
        appended += change(world, kind, number)
        often.poll()
        if looks:
            seldom.poll()
    world.recover_all()
    often.poll()
    seldom.poll()
    assert often.read == seldom.read == [entry for one in appended for entry in entries(one, world.size(one))]
    for start, end, stretches in often.batches:
        if start.version >= world.head.oldest_version:
            assert list(entries_of(often.stretches(start, end))) == list(entries_of(stretches))


def change(world, kind, number):
    """Make one change, if the log allows it; the ledgers that it appended, or opened."""
    listed, open_ids = world.listed(NAME), [one.ledger_id for one in world.head.writer.open_ledgers]
    growing = [one for one in open_ids if not world.existing([one])[0].is_closed]
    if kind == "append":
        return world.append(*range(number))
    if kind == "open" or (kind == "roll" and open_ids):
        return [world.open() if kind == "open" else world.roll()]
    if kind == "empty":
        world.commit(CommitKind.APPEND)
    elif kind == "overwrite":
        world.add(CommitKind.OVERWRITE, [number])
    elif kind == "compact" and listed:
        world.compact(*listed[:number])
    elif kind == "replace" and listed:
        world.add(CommitKind.REPLACE, [number], listed[-number:])
    elif kind == "confirm" and growing:
        world.confirm(growing[-1], number)
    elif kind == "close" and open_ids:
        world.close_at(open_ids[0])
    elif kind == "vacuum":
        world.vacuum()
    return []
