"""Requests as JSON: what is asked for comes out, a ticket asks for the same again, and all else is refused in one sentence."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.flight.given_fields import MAX_REQUEST_BYTES
from bk_spark.gateway.flight.requests import (
    AskedAppend,
    AskedColumns,
    AskedList,
    AskedLookups,
    AskedRead,
    AskedTail,
    AskedWriter,
    GivenDescriptor,
    parse_action,
    parse_criteria,
    parse_descriptor,
    parse_exchange,
    parse_put,
    parse_ticket,
)
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.rows.latest.asked import AskedView


def _command(**fields: object) -> GivenDescriptor:
    return GivenDescriptor(command=json.dumps(fields).encode())


def test_a_path_asks_for_a_whole_log() -> None:
    orders = GivenDescriptor(("orders",))
    assert parse_descriptor(orders) == AskedRead("orders")
    assert parse_put(orders) == AskedAppend("orders")
    assert parse_exchange(orders) == AskedLookups("orders")


def test_a_command_asks_for_all_that_a_read_takes() -> None:
    asked = parse_descriptor(
        _command(
            log="orders",
            columns=["id"],
            where="id > 5",
            time_zone="UTC",
            lane=3,
            start=[7, 0],
            end=[9, 5],
            timestamp="2026-01-31T12:30:00+00:00",
            view="latest",
            deleted_by="gone",
            endpoints=4,
        )
    )
    assert asked == AskedRead(
        "orders",
        AskedColumns(("id",), "id > 5", "UTC", (3,)),
        LogPosition(7, 0),
        LogPosition(9, 5),
        None,
        datetime(2026, 1, 31, 12, 30, tzinfo=UTC),
        AskedView("latest", "gone", "'view'", "'deleted_by'"),
        4,
    )


@pytest.mark.parametrize(
    "asked",
    [
        AskedRead("orders", version=3),
        AskedRead("ü'\"", AskedColumns(("a", "b"), "a = 'x'", "+01:00", (0, 2)), LogPosition(1, 2), LogPosition(3, 4), 5),
        AskedRead("keys", version=1, view=AskedView("latest", "gone", "'view'", "'deleted_by'")),
        AskedTail("orders"),
        AskedTail("orders", AskedColumns(("a",)), "earliest", "skip"),
        AskedTail("orders", start='{"entry":1,"index":0,"ledger":2,"log":"u","version":3}'),
    ],
)
def test_a_ticket_asks_for_the_same_again(asked) -> None:
    assert parse_ticket(asked.ticket) == asked


def test_a_tail_goes_on_at_what_a_batch_said_as_an_object_or_as_text() -> None:
    place = {"entry": 1, "index": 0, "ledger": 2, "log": "u", "version": 3}
    for start in (place, json.dumps(place)):
        tail = parse_descriptor(_command(log="orders", tail=True, start=start))
        assert isinstance(tail, AskedTail)
        assert json.loads(tail.start) == place


def test_puts_are_appends_or_writers() -> None:
    asked = parse_put(
        _command(log="a", application=["x", 1], create=True, merge_schema=True, partition_key="k", lanes=4, rows=0)
    )
    assert asked == AskedAppend("a", ("x", 1), True, True, ("k",), 4, 0)
    assert parse_put(_command(log="a", continuous=True, merge_schema=True)) == AskedWriter("a", True)
    with pytest.raises(ConfigError, match="a field of the descriptor is 'rows'"):
        parse_put(_command(log="a", continuous=True, rows=5))


def test_criteria_and_actions() -> None:
    assert parse_criteria(b"") == AskedList()
    assert parse_criteria(b'{"prefix": "a", "after": "ab", "limit": 3}') == AskedList("a", "ab", 3)
    assert parse_action("truncate", b'{"log": "a", "before": [7, 1]}').before == LogPosition(7, 1)
    with pytest.raises(ConfigError, match="give the first place that stays"):
        parse_action("truncate", b'{"log": "a"}')
    with pytest.raises(ConfigError, match="a field of the body of action 'show' is 'before'"):
        parse_action("show", b'{"log": "a", "before": [7, 1]}')


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "'log' in the descriptor is missing: give it"),
        ({"log": ""}, "1 to 200 characters"),
        ({"log": "a", "columns": []}, "a list of 1 to 1000 names"),
        ({"log": "a", "columns": [1]}, "a list of names"),
        ({"log": "a", "columns": ["\ud800"]}, "a list of names"),
        ({"log": "a", "where": "x" * 40_000}, "a text of 32768 characters at most"),
        ({"log": "a", "where": "\udfff"}, "it must be a text"),
        ({"log": "a", "version": 1.0}, "a whole number"),
        ({"log": "a", "version": True}, "a whole number"),
        ({"log": "a", "version": 2**63}, "a whole number"),
        ({"log": "a", "version": 1, "timestamp": "2026-01-31T12:30:00Z"}, "leave one of them out"),
        ({"log": "a", "timestamp": "yesterday"}, "a time such as"),
        ({"log": "a", "start": [1]}, "the place of an entry"),
        ({"log": "a", "start": [1, -1]}, "the place of an entry"),
        ({"log": "a", "lane": []}, "a list of 1 to 1000"),
        ({"log": "a", "endpoints": 0}, "from 1 to 1000"),
        ({"log": "a", "endpoints": 1001}, "from 1 to 1000"),
        ({"log": "a", "deleted_by": "x"}, "only works with 'view' set to 'latest'"),
        ({"log": "a", "tail": "yes"}, "it must be true or false"),
        ({"log": "a", "tail": True, "version": 3}, "a field of the descriptor is 'version'"),
        ({"log": "a", "tail": True, "overwrites": "x"}, "'fail' or 'read' or 'skip'"),
    ],
)
def test_what_is_asked_wrongly_is_refused_with_the_field_and_the_way_out(fields, says) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_descriptor(_command(**fields))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b'{"log": NaN}', b'{"log": "a", "log": "a"}', b"\xff", b"[" * 50_000, b"{" * 100, b"1" * 5000],
)
def test_what_is_no_json_object_is_refused(data) -> None:
    with pytest.raises(ConfigError, match="it must be a JSON object"):
        parse_ticket(data)


def test_a_request_above_the_limit_is_not_parsed() -> None:
    with pytest.raises(ConfigError, match=f"it may have {MAX_REQUEST_BYTES} bytes"):
        parse_ticket(b'{"log": "a"' + b" " * MAX_REQUEST_BYTES + b"}")


@pytest.mark.parametrize("path", [(), ("a", "b"), ("a/b",), ("..",)])
def test_a_path_that_names_no_log_is_refused(path) -> None:
    with pytest.raises(ConfigError):
        parse_descriptor(GivenDescriptor(path))


@pytest.mark.parametrize("levels", [17, 980])
@pytest.mark.parametrize("field", ["log", "start", "columns"])
def test_a_request_nested_too_deeply_is_refused_in_one_sentence(field, levels) -> None:
    ticket = b'{"tail": true, "' + field.encode() + b'": ' + b"[" * levels + b"]" * levels + b"}"
    with pytest.raises(ConfigError, match=r"its lists and objects may have 16 levels|it must be a JSON object, such as"):
        parse_ticket(ticket)
