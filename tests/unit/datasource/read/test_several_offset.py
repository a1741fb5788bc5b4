"""The offset of a stream over several logs: its one text, what is refused, and what a batch between two of them reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.datasource.read.several_offset import BatchRange, InLog, SeveralOffset, parse_several, several_offset
from bk_spark.errors import ConfigError
from bk_spark.log.stream.positions import StreamOffset, StreamPosition, behind, stream_offset

FIELDS = {"entry": 12, "index": 3, "ledger": 7, "name": "orders", "version": 41}


def at(entry: int) -> StreamPosition:
    return StreamPosition(4, 0, 7, entry)


def several(**logs: StreamOffset) -> SeveralOffset:
    """Logs by uid; a log's name is its uid in capitals."""
    return SeveralOffset({uid: InLog(uid.upper(), offset) for uid, offset in logs.items()})


def test_an_offset_has_sorted_keys_and_comes_back_as_it_was() -> None:
    """Log rule 6: Spark compares offsets as strings."""
    offset = several(b=StreamOffset(at(5), behind(3)), a=StreamOffset(at(9)))
    text = json.dumps(offset.to_offset(), separators=(",", ":"))
    assert text == (
        '{"format":1,"logs":{"a":{"entry":9,"index":0,"ledger":7,"name":"A","version":4},'
        '"b":{"entry":5,"index":0,"ledger":7,"name":"B","start":{"entry":0,"index":0,"ledger":-1,"version":3},"version":4}}}'
    )
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert parse_several(text, "it") == offset
    assert several_offset({"format": 1, "logs": {}}) == several()


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (None, "the offset in the checkpoint is missing: an offset of several logs looks like"),
        ({"logs": {}}, "an offset of several logs looks like"),
        ({"format": 2, "logs": {}}, "the format of the offset in the checkpoint is 2: this release reads format 1"),
        ({"format": 1, "logs": []}, "'logs' must have 1000 logs at most"),
        ({"format": 1, "logs": {str(n): FIELDS for n in range(MAX_LOGS_READ + 1)}}, "'logs' must have 1000 logs at most"),
        ({"format": 1, "logs": {"../x": FIELDS}}, "a log's id has letters, digits, '-' and '_'"),
        ({"format": 1, "logs": {"u": 3}}, "is 3: an offset of several logs looks like"),
        ({"format": 1, "logs": {"u": {**FIELDS, "more": 1}}}, "an offset of several logs looks like"),
        ({"format": 1, "logs": {"u": {**FIELDS, "name": 7}}}, "'name' must be the log's name"),
        (
            {"format": 1, "logs": {"u": {**FIELDS, "entry": "1"}}},
            "'entry' must be a whole number from 0 on; an offset",
        ),
        ({"format": 1, "logs": {"u": {**FIELDS, "start": {"entry": 1}}}}, "'start' must have entry, index, ledger, version"),
        ({**FIELDS, "log": "u"}, "it is of a stream over one log: name that log alone"),
    ],
)
def test_what_is_no_offset_of_several_logs_is_refused_with_one_sentence(offset: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        several_offset(offset)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"option 'x' is '{broken': it is not JSON"):
        parse_several("{broken", "option 'x'")


def test_a_stream_over_one_log_refuses_the_offset_of_several() -> None:
    with pytest.raises(ConfigError, match="it is of a stream over several logs: name them by 'logs' or 'logsPattern'"):
        stream_offset(several(u=StreamOffset(at(1))).to_offset(), "orders", "u")


def test_a_batch_reads_from_the_start_that_its_end_has_or_from_where_the_batch_before_ended() -> None:
    """Log rule 6. Log b came later, c stands still, d is gone."""
    start = several(a=StreamOffset(at(1)), c=StreamOffset(at(2), behind(3)), d=StreamOffset(at(3)))
    end = several(a=StreamOffset(at(4)), b=StreamOffset(at(5), behind(0)), c=StreamOffset(at(2), behind(3)))
    expected = [BatchRange("a", "A", at(1), at(4)), BatchRange("b", "B", behind(0), at(5))]
    assert list(end.ranges_from(start)) == expected


def test_the_repeated_first_batch_has_its_own_start_whatever_the_start_is_now() -> None:
    """Log rule 6: Spark asks for the start of the first batch again."""
    end = several(a=StreamOffset(at(4), behind(3)), b=StreamOffset(behind(2), behind(2)))
    now = several(a=StreamOffset(at(9), at(9)), b=StreamOffset(at(1), at(1)), c=StreamOffset(at(7), at(7)))
    expected = [BatchRange("a", "A", behind(3), at(4)), BatchRange("b", "B", behind(2), behind(2))]
    assert list(end.ranges_from(now)) == expected


def test_logs_are_read_by_name() -> None:
    end = SeveralOffset({uid: InLog(name, StreamOffset(at(1), behind(0))) for uid, name in (("a", "z"), ("b", "y"))})
    assert [one.name for one in end.ranges_from(several())] == ["y", "z"]


def test_a_log_without_a_start_in_either_offset_is_an_error() -> None:
    with pytest.raises(ConfigError, match="log 'A' in the end of a batch is 'a': the batch's start does not have it"):
        list(several(a=StreamOffset(at(1))).ranges_from(several()))
