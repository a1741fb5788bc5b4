"""Log rule 6: a stream follows commits, never the current list; what it reads, and where it goes on.

Ref: docs/rules.md.
"""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, LogReplacedError
from bk_spark.log.stored.values import CommitKind
from bk_spark.log.stream import follow
from bk_spark.log.stream.follow import LedgerEnd, Unread
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.unit.log.stream.stream_world import NAME, Stream, StreamWorld, entries, entries_of


@pytest.fixture
def world():
    return StreamWorld()


@pytest.fixture
def stream(world):
    return Stream(world, behind(0))


def test_the_row_number_in_a_leader_s_second_open_ledger_is_exact_once_the_ends_are_recorded(world, stream):
    """Otherwise an operator sees a stream behind that has read all there is."""
    world.append(2)
    first = world.open()
    world.confirm(first, 5)
    second = world.roll()
    world.confirm(second, 4)
    world.recover_all()
    stream.poll()
    world.commit(CommitKind.APPEND)
    assert world.follower().row_number(stream.position, world.head) == world.head.end_row == 11


# --- the order of commits


def test_a_stream_reads_what_each_commit_added_once_and_in_the_order_of_versions(world, stream):
    """Log rule 6."""
    first, second = world.append(3, 2)
    assert stream.poll() == [*entries(first, 3), *entries(second, 2)]
    assert stream.poll() == []
    (third,) = world.append(1)
    assert stream.poll() == entries(third, 1)


def test_the_position_stays_in_the_ledger_of_the_last_entry_read_until_a_later_ledger_holds_one(world, stream):
    """Log rule 6: the normal form."""
    _, second = world.append(3, 2)
    stream.poll()
    assert stream.position == StreamPosition(1, 1, second, 2)
    world.commit(CommitKind.APPEND)
    world.append(0, 0)
    assert stream.poll() == []
    _, filled, _ = world.append(0, 4, 0)
    assert stream.poll() == entries(filled, 4)
    assert stream.position == StreamPosition(4, 1, filled, 4)


def test_the_newest_position_is_the_same_from_any_start(world):
    """Log rule 6: the normal form."""
    world.append(3)
    world.append(0)
    (last,) = world.append(2)
    world.append(0)
    starts = [behind(0), StreamPosition(1, 0, 1, 2), behind(2), StreamPosition(3, 0, last, 1)]
    newest = {Stream(world, start).newest().position for start in starts}
    assert newest == {StreamPosition(3, 0, last, 2)}
    assert Stream(world, behind(4)).newest().position == behind(4)


def test_a_compaction_is_stepped_over_by_a_stream_in_its_middle(world, stream):
    """Log rule 6: neither a false data loss nor everything twice."""
    ids = [world.append(5)[0] for _ in range(4)]
    stream.position = StreamPosition(2, 0, ids[1], 2)
    compacted = world.compact(*ids)
    assert world.listed(NAME) == [compacted]
    assert stream.poll() == [*entries(ids[1], 3, 2), *entries(ids[2], 5), *entries(ids[3], 5)]
    assert stream.position.version == 4
    (new,) = world.append(1)
    assert stream.poll() == entries(new, 1)


def test_a_range_is_planned_from_its_offsets_alone_and_stays_the_same(world, stream):
    """Log rule 6."""
    ids = [world.append(5)[0] for _ in range(3)]
    start, end = StreamPosition(1, 0, ids[0], 3), StreamPosition(3, 0, ids[2], 2)
    planned = stream.stretches(start, end)
    assert list(entries_of(planned)) == [*entries(ids[0], 2, 3), *entries(ids[1], 5), *entries(ids[2], 2)]
    world.compact(*ids)
    world.append(9)
    assert stream.stretches(start, end) == planned


# --- open ledgers


def test_an_open_ledger_is_read_as_far_as_it_is_confirmed_and_then_to_its_end(world, stream):
    """Log rule 2: no reader passes a ledger that is not CLOSED and read to its end."""
    opened = world.open()
    assert stream.poll() == []
    world.confirm(opened, 3)
    assert stream.poll() == entries(opened, 3)
    following = world.roll()
    world.confirm(following, 2)
    assert stream.poll() == []
    world.confirm(opened, 1)
    assert stream.poll() == entries(opened, 1, 3)
    world.close_at(opened)
    assert stream.poll() == entries(following, 2)
    assert stream.position == StreamPosition(2, 0, following, 2)


def test_a_ledger_that_was_closed_and_not_recorded_yet_is_read_to_the_end_that_its_metadata_has(world, stream):
    """Log rule 2."""
    opened = world.open()
    world.confirm(opened, 3)
    stream.poll()
    following = world.roll()
    world.confirm(opened, 2)
    world.close_at(opened)
    world.confirm(following, 1)
    start = stream.position
    assert stream.poll() == [*entries(opened, 2, 3), *entries(following, 1)]
    again = stream.stretches(start, stream.position)
    world.roll()
    assert stream.stretches(start, stream.position) == again


def test_an_append_behind_a_leader_is_read_after_all_of_the_leader_s_entries(world, stream):
    """Log rule 2."""
    opened = world.open()
    world.confirm(opened, 2)
    stream.poll()
    world.confirm(opened, 1)
    (appended,) = world.append(2)
    assert stream.poll() == [*entries(opened, 1, 2), *entries(appended, 2)]


def test_bookies_that_lag_after_a_restart_never_move_a_stream_back(world):
    """Log rule 7."""
    opened = world.open()
    world.confirm(opened, 5)
    start = StreamPosition(1, 0, opened, 5)
    lagging = {opened: LedgerEnd(2, is_closed=False)}
    assert world.follower().newest(world.head, lagging, start).position == start


def test_an_offset_behind_a_ledger_that_is_still_open_is_refused(world, stream):
    """Log rule 2."""
    opened = world.open()
    following = world.roll()
    with pytest.raises(ConfigError, match=f"it lies behind ledger {opened} of version 1, which is still open"):
        stream.stretches(behind(0), StreamPosition(2, 0, following, 0))


# --- replaced content


def test_a_replacement_stops_a_stream_that_has_read_all_before_and_names_its_version(world, stream):
    """Log rule 6."""
    (old,) = world.append(3)
    world.add(CommitKind.OVERWRITE, [2])
    world.add(CommitKind.OVERWRITE, [2])
    assert stream.poll() == entries(old, 3)
    assert stream.newest().replaced_by == 2
    with pytest.raises(LogReplacedError, match=f"version 2 of log '{NAME}' replaced content.* option 'overwrites'"):
        stream.stretches(stream.position, StreamPosition(3, 0, 4, 1))


@pytest.mark.parametrize("kind", [CommitKind.OVERWRITE, CommitKind.REPLACE])
def test_new_content_is_read_whole_with_overwrites_read_and_not_at_all_with_skip(world, kind):
    """Log rule 6."""
    streams = [Stream(world, behind(0), overwrites) for overwrites in ("read", "skip")]
    kept, replaced = world.append(3, 2)
    for one in streams:
        one.poll()
    remove = [replaced] if kind is CommitKind.REPLACE else []
    (new,) = world.add(kind, [4], remove)
    (appended,) = world.append(1)
    whole = [*entries(kept, 3), *entries(new, 4)] if kind is CommitKind.REPLACE else entries(new, 4)
    assert [one.poll() for one in streams] == [[*whole, *entries(appended, 1)], entries(appended, 1)]


def test_a_ledger_that_is_open_through_a_replacement_is_read_with_the_new_content_or_goes_on(world):
    """Log rule 6."""
    (old,) = world.append(2)
    opened = world.open()
    world.confirm(opened, 3)
    reading, skipping = (Stream(world, behind(0), overwrites) for overwrites in ("read", "skip"))
    assert reading.poll() == skipping.poll() == [*entries(old, 2), *entries(opened, 3)]
    world.confirm(opened, 1)
    (new,) = world.add(CommitKind.REPLACE, [1], [old])
    starts = reading.position, skipping.position
    assert reading.poll() == [*entries(new, 1), *entries(opened, 4)]
    assert skipping.poll() == entries(opened, 1, 3)
    world.confirm(opened, 1)
    assert reading.poll() == skipping.poll() == entries(opened, 1, 4)
    following = world.roll()
    world.close_at(opened)
    world.confirm(following, 1)
    assert reading.poll() == skipping.poll() == entries(following, 1)
    again = [
        list(entries_of(one.stretches(start, one.position))) for one, start in zip((reading, skipping), starts, strict=True)
    ]
    assert again == [reading.read[5:], skipping.read[5:]]


# --- what does not fit


def test_offsets_that_do_not_fit_the_log_are_refused_with_what_stands_there(world, stream):
    first, second = world.append(3, 2)
    for start, end, problem in (
        (StreamPosition(1, 0, second, 0), StreamPosition(1, 1, second, 1), f"ledger {first} stands there in version 1"),
        (StreamPosition(1, 5, second, 0), StreamPosition(1, 6, second, 1), "nothing stands there in version 1"),
        (behind(0), StreamPosition(1, 1, 77, 1), "nothing stands there in version 1"),
        (behind(0), StreamPosition(2, 0, 77, 1), f"log '{NAME}' has the versions up to 1"),
        (behind(0), StreamPosition(1, 1, second, 3), f"ledger {second} ends with entry 1: take an offset"),
        (StreamPosition(1, 0, first, 4), StreamPosition(1, 1, second, 1), f"ledger {first} ends with entry 2"),
    ):
        with pytest.raises(ConfigError, match=problem):
            stream.stretches(start, end)


# --- cost


# --- all of it at random


# --- how much is unread


def test_what_is_unread_is_told_in_bytes_and_by_the_time_of_the_oldest_commit(world):
    """Entries of 100 bytes."""
    world.append(4)
    head = world.head
    start = world.follower().earliest(head)
    world.pass_s(60)
    world.append(2, 3)
    follower, head = world.follower(), world.head
    times = [version.time_ms for version in world.logs.reader.versions(NAME, world.uid, 1, 2)]
    assert follower.unread(start, head) == Unread(900, times[0])
    inside = StreamPosition(1, 0, world.logs.reader.snapshot(NAME).ledgers[0].ledger_id, 3)
    assert follower.unread(inside, head) == Unread(600, times[0])
    whole = StreamPosition(1, 0, inside.ledger_id, 4)
    assert follower.unread(whole, head) == Unread(500, times[1])
    assert follower.unread(follower.latest(head, {}), head) == Unread(0, None)


def test_what_is_unread_counts_no_ledger_that_is_still_open(world):
    world.append(4)
    leader = world.open()
    world.confirm(leader, 5)
    start = world.follower().earliest(world.head)
    assert world.follower().unread(start, world.head).nbytes == 400


def test_what_is_unread_is_not_known_behind_a_replacement_or_too_many_versions(world, monkeypatch):
    world.append(4)
    start = world.follower().earliest(world.head)
    monkeypatch.setattr(follow, "MOST_UNREAD", 2)
    world.append(1)
    assert world.follower().unread(start, world.head) is not None
    world.append(1)
    assert world.follower().unread(start, world.head) is None
    monkeypatch.undo()
    world.add(CommitKind.OVERWRITE, [2])
    assert world.follower().unread(start, world.head) is None
