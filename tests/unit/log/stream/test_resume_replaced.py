"""Old positions in a leader's ledger that was open when other content was put in the place of what stood before it.

The replacement lists the ledger, so nothing of it is lost, however old the position is.

Ref: docs/rules.md, log rule 6.
"""

from __future__ import annotations

import pytest

from bk_spark.errors import DataLossError, LogReplacedError
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.unit.log.log_requests import schema_json
from tests.unit.log.stream.stream_world import Stream, StreamWorld, entries


def replaced_and_vacuumed(overwrites, when):
    """A stream that has read two entries of a leader's ledger, a replacement, a third entry, a vacuum. What it reads then."""
    world = StreamWorld()
    (old,) = world.append(2)
    opened = world.open()
    world.confirm(opened, 2)
    stream = Stream(world, behind(0), overwrites)
    stream.poll()
    stream.read.clear()
    world.confirm(opened, 1)
    if when == "closed before":
        world.close_at(opened)
    (new,) = world.add(CommitKind.REPLACE, [4], [old])
    if when == "closed behind":
        world.append(0)
    world.vacuum()
    stream.poll()
    (last,) = world.append(1)
    stream.poll()
    return stream.read, opened, new, last


WHEN = ["still open", "closed before", "closed behind"]


@pytest.mark.parametrize("when", WHEN)
def test_a_stream_that_skips_replacements_reads_on_in_the_ledger(when):
    read, opened, _, last = replaced_and_vacuumed("skip", when)
    assert read == [*entries(opened, 1, 2), *entries(last, 1)]


@pytest.mark.parametrize("when", WHEN)
def test_a_stream_that_reads_replacements_reads_all_of_the_new_content(when):
    read, opened, new, last = replaced_and_vacuumed("read", when)
    assert read == [*entries(new, 4), *entries(opened, 3), *entries(last, 1)]


@pytest.mark.parametrize("when", WHEN)
def test_a_stream_that_fails_at_replacements_names_the_version(when):
    world = StreamWorld()
    (old,) = world.append(2)
    opened = world.open()
    stream = Stream(world, behind(0))
    world.confirm(opened, 1)
    stream.poll()
    world.add(CommitKind.REPLACE, [1], [old])
    world.close_at(opened) if when != "still open" else None
    world.vacuum()
    assert stream.poll() == []
    assert stream.newest().replaced_by == 3
    with pytest.raises(LogReplacedError, match="version 3 of log"):
        stream.stretches(behind(0), behind(3))


def rows_ledger(world, entries, rows):
    return CommittedLedger(world.plain_ledger(entries).ledger_id, entries - 1, entries * 100, rows)


@pytest.mark.parametrize("entry_id", [1, 3])
def test_a_stream_that_tolerates_loss_reads_nothing_twice_where_its_place_was_compacted(entry_id):
    """Log rule 6: it goes on behind the ledger that its place is in now, and not from the first row there is."""
    world = StreamWorld()
    old = [rows_ledger(world, 3, 30) for _ in range(4)]
    for one in old:
        world.commit(CommitKind.APPEND, [one], schema_json=schema_json(id="long"))
    new = rows_ledger(world, 5, 90)
    world.commit(CommitKind.COMPACT, [new], remove=tuple(one.ledger_id for one in old[:3]))
    world.vacuum()
    start, end = StreamPosition(2, 0, old[1].ledger_id, entry_id), StreamPosition(3, 0, old[2].ledger_id, 1)
    stream = Stream(world, start, fail_on_data_loss=False)
    with pytest.raises(DataLossError):
        Stream(world, start).stretches(start, stream.newest().position)
    assert stream.stretches(start, end) == []
    for at in (start, end):
        stretches = stream.stretches(at, stream.newest().position)
        assert [(one.ledger_id, one.rows) for one in stretches] == [(old[3].ledger_id, 30)]


def test_a_stream_that_skips_replacements_and_tolerates_loss_does_not_read_the_new_content():
    """Log rule 6."""
    world = StreamWorld()
    world.append(5)
    world.add(CommitKind.OVERWRITE, [4])
    (last,) = world.append(2)
    world.vacuum()
    stream = Stream(world, StreamPosition(1, 0, 1, 2), "skip", fail_on_data_loss=False)
    assert stream.poll() == entries(last, 2)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_stream_that_fails_at_replacements_does_so_also_where_its_place_is_deleted(fail_on_data_loss):
    """Log rule 6: tolerating loss is not tolerating other content."""
    world = StreamWorld()
    for size in (5, 6):
        world.commit(CommitKind.APPEND, [rows_ledger(world, size, size * 10)], schema_json=schema_json(id="long"))
    world.commit(CommitKind.OVERWRITE, [rows_ledger(world, 4, 40)], schema_json=schema_json(id="long"))
    world.vacuum()
    stream = Stream(world, StreamPosition(1, 0, 1, 2), fail_on_data_loss=fail_on_data_loss)
    with pytest.raises(LogReplacedError, match="version 3 of log"):
        stream.stretches(stream.position, behind(3))


def test_a_stream_that_reads_its_way_through_a_listing_asks_for_it_once(monkeypatch):
    world = StreamWorld()
    ids = world.append(3, 3, 3)
    world.open()
    world.vacuum()
    follower, head, asked = world.follower(), world.head, []
    real = LogReader.listing
    monkeypatch.setattr(LogReader, "listing", lambda *given: asked.append(given[3]) or real(*given))
    start = follower.earliest(head)
    read = []
    for _ in ids:
        stretch = next(
            iter(follower.stretches(start, follower.newest(head, world.ends(), start).position, head, fail_on_data_loss=True))
        )
        read.append(stretch.ledger_id)
        start = (
            follower.newest(head, world.ends(), stretch.position_after).position
            if stretch.ledger_id == ids[-1]
            else StreamPosition(stretch.version, stretch.index + 1, ids[len(read)], 0)
        )
    assert read == ids
    assert asked == [head.oldest_version]
