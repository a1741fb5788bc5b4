"""Each call of Flight on a real cluster, by pyarrow's client: what goes in comes out, and what is wrong is refused."""

from __future__ import annotations

import datetime
import json
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.cluster.gateway.flight_calls import act, command, connected, put, read, table, ticket


def test_an_append_is_one_commit_and_a_repeated_one_is_answered_and_not_doubled(caller, name) -> None:
    first = put(caller, table(0), log=name, create=True, rows=1000, application=["loader", 1])
    again = put(caller, table(0), log=name, create=True, rows=1000, application=["loader", 1])
    second = put(caller, table(1000), end=b'{"end": true}', log=name, application=["loader", 2])
    assert [first["already"], again["already"], second["already"]] == [False, True, False]
    assert first["version"] == again["version"] == second["version"] - 1 == 1
    assert read(caller, log=name).equals(pa.concat_tables([table(0), table(1000)]).combine_chunks())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "the end of the rows is missing"),
        ({"rows": 999}, "'rows' in the descriptor is 999: 1000 rows came"),
        ({"rows": 1001}, "'rows' in the descriptor is 1001: 1000 rows came"),
        ({"rows": True}, "'rows' in the descriptor is 'true'"),
        ({"rows": 1000, "color": 1}, "a field of the descriptor is 'color'"),
        ({"rows": 1000, "application": ["x"]}, "it must be an id and a version"),
    ],
)
def test_an_append_that_is_not_said_to_be_whole_leaves_nothing(caller, name, fields, says) -> None:
    with pytest.raises(pa.ArrowInvalid, match=says):
        put(caller, table(0), log=name, create=True, **fields)
    with pytest.raises(pa.ArrowKeyError, match="there is no log"):
        read(caller, log=name)


def test_nothing_may_follow_the_end_mark_of_an_append(caller, name) -> None:
    writer, _ = caller.do_put(command(log=name, create=True), table(0).schema)
    writer.write_with_metadata(table(0).to_batches()[0], b'{"end": true}')
    writer.write_table(table(1000))
    writer.done_writing()
    with pytest.raises(pa.ArrowInvalid, match="a message follows the end mark"):
        writer.close()


def test_a_read_is_split_into_tickets_that_give_each_row_of_one_version_once(caller, bookkeeper, name) -> None:
    for first in range(0, 5000, 1000):
        put(caller, table(first), log=name, create=True, rows=1000)
    info = caller.get_flight_info(command(log=name, endpoints=3))
    assert (info.total_records, len(info.endpoints), info.ordered) == (5000, 3, True)
    assert info.schema == table(0).schema
    put(caller, table(5000), log=name, rows=1000)  # behind the version of the tickets
    parts = [caller.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert all(part.num_rows for part in parts)
    assert pa.concat_tables(parts)["id"].to_pylist() == list(range(5000))
    filtered = caller.get_flight_info(command(log=name, endpoints=2, columns=["id"], where="id >= 2500 AND id < 5500"))
    assert [x for one in filtered.endpoints for x in caller.do_get(one.ticket).read_all()["id"].to_pylist()] == list(
        range(2500, 5500)
    )


def test_rows_are_chosen_by_columns_conditions_places_versions_and_times(caller, bookkeeper, name) -> None:
    put(caller, table(0), log=name, create=True, rows=1000)
    between = datetime.datetime.now(datetime.UTC).isoformat()
    time.sleep(0.002)  # commits have times in milliseconds
    put(caller, table(1000), log=name, rows=1000)
    assert read(caller, log=name, columns=["item", "id"], where="id IN (3, 1500)").to_pylist() == [
        {"item": "item 3", "id": 3},
        {"item": "item 1500", "id": 1500},
    ]
    assert read(caller, log=name, version=1).num_rows == read(caller, log=name, timestamp=between).num_rows == 1000
    second = bookkeeper.open_log(name).ledgers()[1].ledger_id
    assert read(caller, log=name, start=[second, 0])["id"].to_pylist() == list(range(1000, 2000))
    assert read(caller, log=name, end=[second, 0])["id"].to_pylist() == list(range(1000))


def test_the_newest_rows_of_keys_are_read_by_view_and_by_look_ups(caller, name) -> None:
    rows = pa.table({"key": ["a", "b", "a", "c"], "value": [1, 2, 3, 4]})
    put(caller, rows, log=name, create=True, partition_key="key", lanes=4, rows=4)
    info = caller.get_flight_info(command(log=name, view="latest", endpoints=3))
    newest = pa.concat_tables([caller.do_get(one.ticket).read_all() for one in info.endpoints])
    assert dict(zip(newest["key"].to_pylist(), newest["value"].to_pylist(), strict=True)) == {"a": 3, "b": 2, "c": 4}
    assert sum(read(caller, log=name, lane=lane).num_rows for lane in range(4)) == 4
    writer, answers = caller.do_exchange(command(log=name, columns=["value"]))
    with writer:
        writer.begin(pa.schema([("key", pa.string())]))
        for number, (keys, values) in enumerate([(["c", "no such", "a"], [4, 3]), (["no such"], []), (["b"], [2])], 1):
            writer.write_batch(pa.record_batch([keys], names=["key"]))
            answer = answers.read_chunk()
            assert answer.data["value"].to_pylist() == values
            assert json.loads(answer.app_metadata.to_pybytes()) == {"answered": number}
        writer.done_writing()


def test_a_tail_gives_what_is_there_then_what_comes_and_says_where_to_go_on(caller, gateway, name) -> None:
    put(caller, table(0), log=name, create=True, rows=1000)
    tail = caller.do_get(ticket(log=name, tail=True, start="earliest"))
    seen = tail.read_chunk()
    place = json.loads(seen.app_metadata.to_pybytes())["next"]
    with connected(gateway.port) as other:
        put(other, table(1000, 10), log=name, rows=10)
    assert seen.data.num_rows == 1000
    assert tail.read_chunk().data["id"].to_pylist() == list(range(1000, 1010))
    tail.cancel()
    later = caller.do_get(ticket(log=name, tail=True, start=place, columns=["id"], where="id > 1004"))
    assert later.read_chunk().data.to_pylist() == [{"id": one} for one in range(1005, 1010)]
    later.cancel()


def test_a_tail_from_before_the_columns_grew_gives_all_rows_with_the_columns_of_now(caller, name) -> None:
    put(caller, pa.table({"id": [1]}), log=name, create=True, rows=1)
    put(caller, pa.table({"id": [2], "more": ["x"]}), log=name, rows=1, merge_schema=True)
    tail = caller.do_get(ticket(log=name, tail=True, start="earliest"))
    assert [row for _ in range(2) for row in tail.read_chunk().data.to_pylist()] == [
        {"id": 1, "more": None},
        {"id": 2, "more": "x"},
    ]
    tail.cancel()


def test_a_continuous_writer_acknowledges_each_batch_once_readers_can_have_it(caller, gateway, name) -> None:
    act(caller, "create", log=name)
    writer, answers = caller.do_put(command(log=name, continuous=True), table(0).schema)
    for number in range(5):
        writer.write_batch(table(number * 10, 10).to_batches()[0])
        answer = json.loads(answers.read().to_pybytes())
        assert answer["acked"] == number + 1
        assert answer["entry"] >= number
    writer.done_writing()
    assert json.loads(answers.read().to_pybytes()) == {"acked": 5, "closed": True}
    writer.close()
    assert read(caller, log=name)["id"].to_pylist() == list(range(50))


def test_logs_are_listed_by_name_with_their_columns_in_pages_and_by_prefix(caller, name) -> None:
    for number in range(3):
        put(caller, table(0, 10), log=f"{name}-{number}", create=True, rows=10)
    act(caller, "create", log=f"{name}-empty")
    infos = list(caller.list_flights(json.dumps({"prefix": name}).encode()))
    assert [one.descriptor.path[0].decode() for one in infos] == [f"{name}-{end}" for end in ("0", "1", "2", "empty")]
    assert [one.total_records for one in infos] == [10, 10, 10, -1]
    assert caller.do_get(infos[0].endpoints[0].ticket).read_all().equals(table(0, 10))
    page = json.dumps({"prefix": name, "after": f"{name}-0", "limit": 1}).encode()
    assert [one.descriptor.path[0].decode() for one in caller.list_flights(page)] == [f"{name}-1"]
    assert caller.get_schema(flight.FlightDescriptor.for_path(f"{name}-0")).schema == table(0).schema


def test_actions_create_show_truncate_compact_and_delete_a_log(caller, name) -> None:
    assert {one.type for one in caller.list_actions()} == {
        "create",
        "delete",
        "truncate",
        "compact",
        "versions",
        "show",
        "health",
    }
    assert act(caller, "health") == [{"state": "serving"}]
    assert act(caller, "create", log=name) == [{"log": name, "version": 0}]
    rows = pa.table({"key": ["a", "a"], "value": [1, 2]})
    for _ in range(2):
        put(caller, rows, log=name, partition_key="key", lanes=2, rows=2)
    [shown] = act(caller, "show", log=name)
    assert (shown["rows"], shown["key"], len(shown["ledgers"])) == (4, ["key"], 2)
    assert [one["added_rows"] for one in act(caller, "versions", log=name)] == [2, 2]
    second = shown["ledgers"][1]["ledger"]
    assert act(caller, "truncate", log=name, before=[second, 0])[0]["kind"] == "truncate"
    assert act(caller, "compact", log=name)[0]["removed_rows"] == 2
    assert read(caller, log=name).to_pylist() == [{"key": "a", "value": 2}]
    assert act(caller, "delete", log=name) == [{"log": name, "deleted": True}]
    with pytest.raises(pa.ArrowKeyError, match="there is no log"):
        act(caller, "show", log=name)


def test_a_log_that_is_deleted_and_made_anew_is_the_new_one_to_look_ups(caller, name) -> None:
    for value in (1, 2):
        put(caller, pa.table({"key": ["a"], "value": [value]}), log=name, create=True, partition_key="key", rows=1)
        writer, answers = caller.do_exchange(command(log=name, columns=["value"]))
        with writer:
            writer.begin(pa.schema([("key", pa.string())]))
            writer.write_batch(pa.record_batch([["a"]], names=["key"]))
            assert answers.read_chunk().data["value"].to_pylist() == [value]
            writer.done_writing()
        act(caller, "delete", log=name)


def test_columns_of_dictionaries_and_compressed_batches_are_taken(gateway, name) -> None:
    rows = pa.table({"id": [1, 2, 3], "kind": pa.array(["x", "y", "x"]).dictionary_encode()})
    options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    with connected(gateway.port) as caller:
        writer, answers = caller.do_put(command(log=name, create=True, rows=3), rows.schema, options)
        writer.write_table(rows)
        writer.done_writing()
        answers.read()
        writer.close()
        assert read(caller, log=name)["kind"].to_pylist() == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (b"", pa.ArrowInvalid, "the ticket is b''"),
        (b"\xff\x00", pa.ArrowInvalid, "it must be a JSON object"),
        (b'{"log": "orders", "log": "orders"}', pa.ArrowInvalid, "it must be a JSON object"),
        (b"[" * 5000, pa.ArrowInvalid, "it must be a JSON object"),
        (b'{"log": "no such log"}', pa.ArrowKeyError, "there is no log 'no such log'"),
        (b'{"log": "a/b"}', pa.ArrowInvalid, "log name is 'a/b'"),
        (b'{"log": "orders", "version": -1}', pa.ArrowInvalid, "'version' in the ticket"),
        (b'{"log": "orders", "view": "some"}', pa.ArrowInvalid, "it must be 'all' or 'latest'"),
        (b'{"log": "orders", "timestamp": "2026-01-01T00:00:00"}', pa.ArrowInvalid, "no offset from UTC"),
        (b'{"log": "' + b"x" * 70_000 + b'"}', pa.ArrowInvalid, "the size of the ticket"),
    ],
)
def test_a_wrong_ticket_is_refused_in_one_sentence(caller, given, kind, says) -> None:
    with pytest.raises(kind, match=says) as refused:
        caller.do_get(flight.Ticket(given)).read_all()
    assert "Traceback" not in str(refused.value)
    assert "/bk_spark/" not in str(refused.value)


def test_a_ticket_of_a_log_that_was_deleted_is_none_of_the_next_log_of_its_name(caller, name) -> None:
    put(caller, table(0), log=name, create=True, rows=1000)
    (endpoint,) = caller.get_flight_info(command(log=name)).endpoints
    (listed,) = next(iter(caller.list_flights(json.dumps({"prefix": name}).encode()))).endpoints
    assert caller.do_get(endpoint.ticket).read_all().num_rows == 1000
    act(caller, "delete", log=name)
    put(caller, table(5000), log=name, create=True, rows=1000)
    for ticket_of_old in (endpoint.ticket, listed.ticket):
        with pytest.raises(flight.FlightInternalError, match="it was deleted and made anew since the ticket was given"):
            caller.do_get(ticket_of_old).read_all()
