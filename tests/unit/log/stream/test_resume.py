"""Where streams start, and where old ones go on: truncation, vacuum, compaction, positions that are no more.

Ref: docs/rules.md, log rules 6 and 10.
"""

from __future__ import annotations

import pytest

from bk_spark.errors import DataLossError, LogReplacedError
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.unit.log.log_requests import schema_json
from tests.unit.log.stream.stream_world import NAME, Stream, StreamWorld, entries


@pytest.fixture
def world():
    return StreamWorld()


@pytest.fixture
def stream(world):
    return Stream(world, behind(0))


# --- where a stream starts


def test_the_earliest_position_of_a_log_that_kept_everything_is_before_its_first_commit(world):
    assert world.follower().earliest(world.head) == behind(0)
    world.append(1)
    assert world.follower().earliest(world.head) == behind(0)


def test_the_earliest_position_is_behind_what_was_truncated(world):
    ids = [world.append(5)[0] for _ in range(4)]
    world.truncate(ids[2])
    stream = Stream(world, world.follower().earliest(world.head))
    assert stream.poll() == [*entries(ids[2], 5), *entries(ids[3], 5)]


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_the_earliest_position_is_inside_a_commit_that_was_truncated_in_part(world, is_vacuumed):
    """Log rule 10: what a stream never stood before is not lost to it."""
    world.append(5)
    if is_vacuumed:
        world.vacuum()
    _, _, kept = world.append(10, 10, 10)
    (last,) = world.append(3)
    world.truncate(kept)
    stream = Stream(world, world.follower().earliest(world.head))
    assert stream.position == StreamPosition(2, 2, kept, 0)
    assert stream.poll() == [*entries(kept, 10), *entries(last, 3)]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_earliest_position_is_behind_truncated_ledgers_of_a_leader_that_an_append_closed(world, cut):
    """Their ends, and the appended rows, came in one version."""
    first, second = world.open(), world.roll()
    world.confirm(first, 4)
    world.confirm(second, 3)
    ids = [first, second, *world.append(5, 5)]
    world.truncate(ids[cut])
    stream = Stream(world, world.follower().earliest(world.head))
    assert stream.poll() == [one for ledger_id in ids[cut:] for one in entries(ledger_id, world.size(ledger_id))]


def test_the_earliest_position_of_a_log_that_was_overwritten_is_before_the_new_content(world):
    world.append(5)
    (new,) = world.add(CommitKind.OVERWRITE, [2])
    (last,) = world.append(1)
    assert Stream(world, world.follower().earliest(world.head)).poll() == [*entries(new, 2), *entries(last, 1)]


def test_the_earliest_position_after_a_vacuum_is_before_all_that_the_oldest_version_lists(world):
    ids = [world.append(5)[0] for _ in range(2)]
    compacted = world.compact(*ids)
    opened = world.open()
    world.confirm(opened, 2)
    world.vacuum()
    assert world.head.oldest_version == 4
    stream = Stream(world, world.follower().earliest(world.head))
    assert stream.position == StreamPosition(4, -1, compacted, 0)
    assert stream.poll() == [*entries(compacted, 10), *entries(opened, 2)]
    assert stream.position == StreamPosition(4, 0, opened, 2)


def test_the_earliest_position_does_not_miss_a_ledger_that_was_open_when_the_last_truncated_row_came(world):
    first = world.open()
    world.confirm(first, 2)
    second = world.roll()
    world.confirm(second, 3)
    third = world.roll()
    world.confirm(third, 1)
    world.truncate(second)
    stream = Stream(world, world.follower().earliest(world.head))
    assert stream.poll() == entries(second, 3)
    world.close_at(second)
    assert stream.poll() == entries(third, 1)


def test_the_latest_position_is_behind_the_last_entry_also_of_an_open_ledger(world):
    world.append(2)
    assert world.follower().latest(world.head, world.ends()) == behind(1)
    opened = world.open()
    assert world.follower().latest(world.head, world.ends()) == StreamPosition(2, 0, opened, 0)
    world.confirm(opened, 2)
    stream = Stream(world, world.follower().latest(world.head, world.ends()))
    world.confirm(opened, 1)
    following = world.roll()
    world.close_at(opened)
    world.confirm(following, 1)
    assert stream.poll() == [*entries(opened, 1, 2), *entries(following, 1)]
    assert world.follower().latest(world.head, world.ends()) == stream.position


def test_a_stream_that_starts_behind_a_replacement_reads_on_in_a_ledger_that_was_open_through_it(world):
    (old,) = world.append(2)
    opened = world.open()
    world.confirm(opened, 2)
    world.add(CommitKind.REPLACE, [1], [old])
    for overwrites in ("fail", "read", "skip"):
        stream = Stream(world, world.follower(overwrites).latest(world.head, world.ends()), overwrites)
        assert stream.poll() == []
        world.confirm(opened, 1)
        assert stream.poll() == entries(opened, 1, world.confirmed[opened] - 1)


def test_a_start_by_time_reads_the_commits_of_that_time_and_later_and_open_ledgers_whole(world):
    (first,) = world.append(1)
    world.pass_s(10)
    (second,) = world.append(1)
    second_ms = world.now_ms
    world.pass_s(10)
    opened = world.open()
    world.confirm(opened, 2)
    world.pass_s(10)

    def read_from(time_ms):
        return Stream(world, world.follower().at_time(world.head, time_ms)).poll()

    assert read_from(0) == [*entries(first, 1), *entries(second, 1), *entries(opened, 2)]
    assert read_from(second_ms) == [*entries(second, 1), *entries(opened, 2)]
    assert read_from(second_ms + 1) == entries(opened, 2)
    assert read_from(world.now_ms) == entries(opened, 2)


def test_a_start_by_a_time_before_what_the_log_keeps_is_the_earliest(world):
    world.append(1)
    world.pass_s(10)
    world.append(1)
    world.vacuum()
    assert world.follower().at_time(world.head, 5) == world.follower().earliest(world.head)


# --- data loss


def test_truncation_that_overtook_a_stream_is_an_error_or_skipped(world):
    """Log rule 10."""
    ids = [world.append(5)[0] for _ in range(3)]
    failing = Stream(world, StreamPosition(1, 0, ids[0], 4))
    skipping = Stream(world, failing.position, fail_on_data_loss=False)
    world.truncate(ids[2])
    with pytest.raises(DataLossError, match=f"ledger {ids[0]} of version 1 was truncated; .* failOnDataLoss"):
        failing.poll()
    assert skipping.poll() == entries(ids[2], 5)


def test_a_stream_at_the_end_of_a_truncated_ledger_has_lost_nothing(world):
    """Log rule 10."""
    ids = [world.append(5)[0] for _ in range(2)]
    stream = Stream(world, StreamPosition(1, 0, ids[0], 5))
    world.truncate(ids[1])
    world.vacuum()
    assert stream.poll() == entries(ids[1], 5)


def test_a_leader_s_ledger_behind_another_is_not_mistaken_for_a_truncated_one(world):
    """Log rule 10: its row number is that of the first open ledger, until that one's end is recorded."""
    first = world.open()
    world.confirm(first, 5)
    second = world.roll()
    world.confirm(second, 5)
    stream = Stream(world, StreamPosition(2, 0, second, 1))
    third = world.roll()
    world.truncate(second)
    assert world.head.first_row == 5
    assert stream.poll() == entries(second, 4, 1)
    world.roll()
    world.truncate(third)
    stream.position = StreamPosition(2, 0, second, 1)
    with pytest.raises(DataLossError, match=f"ledger {second} of version 2 was truncated"):
        stream.stretches(stream.position, StreamPosition(2, 0, second, 5))


def test_what_a_stream_had_not_read_of_a_truncated_and_vacuumed_ledger_is_lost(world):
    """Log rule 10."""
    ids = [world.append(5)[0] for _ in range(3)]
    failing = Stream(world, StreamPosition(1, 0, ids[0], 3))
    skipping = Stream(world, failing.position, fail_on_data_loss=False)
    world.truncate(ids[2])
    world.vacuum()
    with pytest.raises(DataLossError, match="stands at version 1, the oldest that can be read is 4: row 3 was truncated"):
        failing.poll()
    assert skipping.poll() == entries(ids[2], 5)


# --- positions below the oldest version


def test_a_stream_older_than_the_retention_goes_on_in_its_ledger_if_that_is_still_listed(world, stream):
    """Log rule 6."""
    ids = [world.append(5)[0] for _ in range(3)]
    stream.position = StreamPosition(3, 0, ids[2], 2)
    compacted = world.compact(*ids[:2])
    (new,) = world.append(1)
    world.vacuum()
    assert world.listed(NAME) == [compacted, ids[2], new]
    assert stream.poll() == [*entries(ids[2], 3, 2), *entries(new, 1)]


@pytest.mark.parametrize("entry_id", [0, 2, 5])
def test_a_stream_older_than_the_retention_resumes_by_row_number_where_its_ledger_was_compacted(world, stream, entry_id):
    """Log rule 6: entries are rows, so any of them can be found again."""
    ids = [world.append(5)[0] for _ in range(3)]
    stream.position = StreamPosition(2, 0, ids[1], entry_id)
    compacted = world.compact(*ids)
    world.vacuum()
    assert stream.poll() == entries(compacted, 10 - entry_id, 5 + entry_id)


def test_a_leader_s_position_older_than_the_retention_resumes_by_row_number_too(world, stream):
    """Log rule 6."""
    first = world.open()
    world.confirm(first, 4)
    second = world.roll()
    world.confirm(second, 4)
    stream.position = StreamPosition(2, 0, second, 3)
    (third,) = world.append(2)
    compacted = world.compact(first, second, third)
    world.vacuum()
    assert stream.poll() == entries(compacted, 3, 7)


def test_a_stream_follows_an_open_ledger_past_the_retention_of_its_version(world, stream):
    """Log rule 6."""
    (first,) = world.append(1)
    opened = world.open()
    world.confirm(opened, 2)
    assert stream.poll() == [*entries(first, 1), *entries(opened, 2)]
    world.truncate(opened)
    world.vacuum()
    assert world.head.oldest_version == 3
    world.confirm(opened, 2)
    assert stream.poll() == entries(opened, 2, 2)
    (new,) = world.append(1)
    world.vacuum()
    assert stream.poll() == entries(new, 1)


def test_the_rest_of_a_leader_s_ledger_is_read_that_was_confirmed_after_a_vacuum(world, stream):
    """Log rule 6: the version that opened it cannot be read any more."""
    opened = world.open()
    world.confirm(opened, 5)
    stream.poll()
    world.roll()
    world.vacuum()
    assert world.head.oldest_version == 2
    world.confirm(opened, 1)
    world.commit(CommitKind.APPEND)
    assert stream.poll() == entries(opened, 1, 5)


@pytest.mark.parametrize("entry_id", [0, 2, 5])
def test_a_stream_that_began_in_a_listing_resumes_by_row_number_once_that_cannot_be_read(world, entry_id):
    """Log rule 6: the records that the listing was made of stay for longer."""
    ids = [world.append(5)[0] for _ in range(3)]
    world.truncate(ids[1])
    stream = Stream(world, StreamPosition(4, -2, ids[1], entry_id))
    compacted = world.compact(ids[1], ids[2])
    world.vacuum()
    assert world.follower().row_number(stream.position, world.head) == 5 + entry_id
    assert stream.poll() == entries(compacted, 10 - entry_id, entry_id)


def test_a_stream_that_has_read_the_listing_it_began_in_has_lost_nothing(world):
    """Log rule 6."""
    (first,) = world.append(5)
    opened = world.open()
    world.confirm(opened, 4)
    world.truncate(opened)
    begun = [StreamPosition(3, -1, opened, 4), StreamPosition(3, -1, opened, 1)]
    second = world.roll()
    world.confirm(second, 2)
    (last,) = world.append(1)
    world.truncate(second)
    world.vacuum()
    assert first not in world.listed(NAME)
    assert Stream(world, begun[0]).poll() == [*entries(second, 2), *entries(last, 1)]
    with pytest.raises(DataLossError, match="row 6 was truncated"):
        Stream(world, begun[1]).poll()


def test_a_position_in_a_listing_whose_records_are_gone_is_lost(world, monkeypatch):
    """Log rule 6: unknown is not taken for nothing lost."""
    ids = [world.append(5)[0] for _ in range(3)]
    world.truncate(ids[1])
    stream = Stream(world, StreamPosition(4, -1, ids[2], 5))
    world.compact(ids[1], ids[2])
    world.vacuum()
    monkeypatch.setattr(LogReader, "recorded_listing", lambda *_: None)
    with pytest.raises(DataLossError, match="what it was to read next is deleted"):
        stream.poll()


def rows_ledger(world, entries, rows):
    return CommittedLedger(world.plain_ledger(entries).ledger_id, entries - 1, entries * 100, rows)


@pytest.mark.parametrize(("entry_id", "read"), [(0, [0, 1]), (1, None), (3, [1])])
def test_a_position_in_compacted_rows_is_carried_over_from_the_boundary_of_a_ledger_alone(world, entry_id, read):
    """Log rule 6: what is inside an entry cannot be pointed at."""
    old = [rows_ledger(world, 3, 30) for _ in range(3)]
    for one in old:
        world.commit(CommitKind.APPEND, [one], schema_json=schema_json(id="long"))
    new = [rows_ledger(world, entries, 30) for entries in (4, 1)]
    world.commit(CommitKind.COMPACT, new, remove=(old[1].ledger_id, old[2].ledger_id))
    world.vacuum()
    start = StreamPosition(2, 0, old[1].ledger_id, entry_id)
    if read is None:
        with pytest.raises(DataLossError, match="what it was to read next is deleted"):
            Stream(world, start).stretches(start, behind(4))
    else:
        stretches = Stream(world, start).stretches(start, behind(4))
        assert [stretch.ledger_id for stretch in stretches] == [new[place].ledger_id for place in read]


def test_a_position_inside_a_ledger_of_rows_that_is_still_listed_is_carried_over(world):
    """Log rule 6."""
    old = [rows_ledger(world, 3, 30) for _ in range(3)]
    for one in old:
        world.commit(CommitKind.APPEND, [one], schema_json=schema_json(id="long"))
    new = rows_ledger(world, 1, 60)
    world.commit(CommitKind.COMPACT, [new], remove=(old[1].ledger_id, old[2].ledger_id))
    world.vacuum()
    start = StreamPosition(1, 0, old[0].ledger_id, 1)
    stretches = Stream(world, start).stretches(start, behind(4))
    assert [(stretch.ledger_id, stretch.first_entry_id) for stretch in stretches] == [(old[0].ledger_id, 1), (new.ledger_id, 0)]


def test_what_was_left_of_replaced_content_when_it_was_vacuumed_is_lost(world):
    """Log rule 6."""
    (old,) = world.append(5)
    (new,) = world.add(CommitKind.OVERWRITE, [2])
    world.vacuum()
    ended, inside = StreamPosition(1, 0, old, 5), StreamPosition(1, 0, old, 4)
    assert Stream(world, ended, "read").poll() == entries(new, 2)
    with pytest.raises(DataLossError, match="row 4 was replaced by version 2"):
        Stream(world, inside, "read").poll()
    assert Stream(world, inside, "read", fail_on_data_loss=False).poll() == entries(new, 2)
    assert Stream(world, ended, "skip").poll() == []
    with pytest.raises(LogReplacedError, match="version 2"):
        Stream(world, ended).stretches(ended, StreamPosition(2, 0, new, 2))


def test_a_position_in_a_version_that_replaced_the_content_is_carried_over_or_lost_like_any_other(world):
    """Log rule 6: the listing of a version that was vacuumed cannot be read."""
    world.append(1)
    (first,) = world.add(CommitKind.OVERWRITE, [3])
    (second,) = world.append(4)
    compacted = world.compact(first, second)
    world.vacuum()
    read = Stream(world, StreamPosition(2, 0, first, 2)).poll()
    assert [ledger_id for ledger_id, _ in read] == [compacted] * 5
    (replaced,) = world.add(CommitKind.REPLACE, [7], [compacted])
    world.compact(replaced)
    world.vacuum()
    with pytest.raises(DataLossError, match="is deleted"):
        Stream(world, StreamPosition(5, 0, replaced, 2)).poll()
