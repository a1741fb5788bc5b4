"""Positions of streams: their order, and the one text of each."""

from __future__ import annotations

import itertools
import json

import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.stream.positions import (
    BEHIND,
    StreamOffset,
    StreamPosition,
    behind,
    parse_position,
    position_of_offset,
    stream_offset,
)

WHAT = "option 'startingOffsets'"


def test_an_offset_is_json_with_sorted_keys_and_whole_numbers():
    """Log rule 6."""
    position = StreamPosition(41, 3, 7, 12)
    assert position.to_json("u") == '{"entry":12,"index":3,"ledger":7,"log":"u","version":41}'
    assert json.dumps(position.to_offset("u"), separators=(",", ":")) == position.to_json("u")
    assert parse_position(position.to_json("u"), "orders", "u", WHAT) == position


def test_positions_are_ordered_as_a_stream_reads():
    """Log rule 7: the newest position must never be below an older one."""
    in_order = [
        behind(0),
        StreamPosition(1, -2, 9, 0),
        StreamPosition(1, -1, 3, 5),
        StreamPosition(1, 0, 7, 0),
        StreamPosition(1, 0, 7, 12),
        StreamPosition(1, 1, 2, 0),
        behind(1),
        StreamPosition(2, -9, 1, 0),
        StreamPosition(2, 0, 4, 0),
    ]
    assert sorted({*in_order}) == in_order
    assert all(a < b for a, b in itertools.pairwise(in_order))


def test_the_first_batch_s_end_says_where_it_started_and_no_later_one_does():
    """Log rule 6: Spark keeps the end of the first batch and asks for its start again."""
    start = StreamOffset(behind(3), behind(3))
    assert start.end_of_batch(behind(3)) == start
    first = start.end_of_batch(StreamPosition(4, 0, 7, 5))
    assert json.dumps(first.to_offset("u"), separators=(",", ":")) == (
        '{"entry":5,"index":0,"ledger":7,"log":"u","start":{"entry":0,"index":0,"ledger":-1,"version":3},"version":4}'
    )
    assert stream_offset(first.to_offset("u"), "orders", "u") == first
    assert first.end_of_batch(first.position) == first  # nothing is new: the same text
    second = first.end_of_batch(StreamPosition(4, 0, 7, 6))
    assert second == StreamOffset(StreamPosition(4, 0, 7, 6))
    assert second.end_of_batch(StreamPosition(5, 0, 9, 1)).start is None
    assert second.to_offset("u") == second.position.to_offset("u")


def test_an_offset_with_a_start_is_taken_as_the_position_that_it_is():
    """Log rule 6: users give ``startingOffsets`` what a query's progress shows."""
    first = StreamOffset(StreamPosition(4, 0, 7, 5), behind(3))
    assert parse_position(json.dumps(first.to_offset("u")), "orders", "u", WHAT) == first.position


PLACE = {"entry": 0, "index": 0, "ledger": 7, "version": 1}
GOOD = {**PLACE, "log": "u"}


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        ({**GOOD, "entry": -1}, "'entry' must be a whole number from 0 on"),
        ({**GOOD, "entry": 1.0}, "'entry' must be a whole number"),
        ({**GOOD, "entry": True}, "'entry' must be a whole number"),
        ({**GOOD, "entry": 2**63}, "'entry' must be a whole number"),
        ({**GOOD, "version": None}, "'version' must be a whole number from 0 on"),
        ({**GOOD, "ledger": -2}, "'ledger' must be a whole number from -1 on"),
        ({**GOOD, "log": 5}, "'log' must be the log's id"),
        ({**GOOD, "log": "v"}, "log 'orders' has the id u now: it was deleted and made anew, start with a new checkpoint"),
        ({**GOOD, "ledger": BEHIND, "entry": 1}, "index and entry are 0"),
        ({**GOOD, "version": 0}, "version 0 is the empty log, which has no ledger"),
        ({**GOOD, "more": 1}, "an offset looks like"),
        ({**GOOD, "start": None}, "'start' must have entry, index, ledger, version"),
        ({**GOOD, "start": GOOD}, "'start' must have entry, index, ledger, version"),
        ({**GOOD, "start": {**PLACE, "entry": -1}}, "'entry' must be a whole number from 0 on"),
        ({**GOOD, "start": {**PLACE, "version": 2}}, "'start' must not lie behind it"),
        ({"version": 1}, "an offset looks like"),
        ([1], "an offset looks like"),
        (None, "an offset looks like"),
    ],
)
def test_what_is_no_offset_of_the_log_is_refused_in_one_sentence_that_names_it(offset, problem):
    """Log rule 6."""
    with pytest.raises(ConfigError, match=f"^the offset in the checkpoint is .*{problem}"):
        position_of_offset(offset, "orders", "u")


@pytest.mark.parametrize("text", ["", "{", "earliest", "[" * 100_000])
def test_text_that_is_no_json_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError, match=r"^option 'startingOffsets' is .{0,300}: it is not JSON; an offset looks like"):
        parse_position(text, "orders", "u", WHAT)


def test_a_batch_starts_where_the_one_before_ended_and_the_first_one_where_its_end_says():
    """Log rule 6: the start of the first batch is asked for again when it is repeated."""
    here, later = StreamPosition(4, 0, 7, 5), StreamPosition(4, 0, 7, 6)
    first = StreamOffset(here, behind(3))
    assert first.start_of_batch(StreamOffset(later, later)) == behind(3)
    assert first.start_of_batch(first) == here  # a batch in which nothing is new
    assert StreamOffset(later).start_of_batch(first) == here
