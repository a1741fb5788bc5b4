"""The streams of a caller's connection: however calls end, the next ones have room."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.gateway import server
from bk_spark.gateway.open_access import OpenAccess
from bk_spark.gateway.server import Gateway
from tests.cluster.gateway.flight_calls import act, command, connected, put, read, table, ticket, until

STREAMS = 32
"""Of a connection, in place of 256: more than refused calls leave open for the moment that ending them takes."""

ROWS = table(0, 10)


@pytest.fixture
def few_streams(bookkeeper: BookKeeper, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    options = dict(server._OPTIONS)
    assert options["grpc.max_concurrent_streams"] > STREAMS
    monkeypatch.setattr(server, "_OPTIONS", tuple((options | {"grpc.max_concurrent_streams": STREAMS}).items()))
    with Gateway(bookkeeper, OpenAccess()) as gateway:
        yield gateway


def _append(caller: flight.FlightClient, name: str) -> None:
    put(caller, ROWS, log=name, rows=10)


def _append_too_few(caller: flight.FlightClient, name: str) -> None:
    with suppress(pa.ArrowInvalid):
        put(caller, ROWS, log=name, rows=11)


def _append_without_a_log(caller: flight.FlightClient, name: str) -> None:
    with suppress(KeyError, flight.FlightError):
        put(caller, ROWS, log=f"no {name}", rows=10)


def _write(caller: flight.FlightClient, name: str) -> None:
    put(caller, ROWS, log=name, continuous=True)


def _tail_a_moment(caller: flight.FlightClient, name: str) -> None:
    reader = caller.do_get(ticket(log=name, tail=True, start="earliest"))
    reader.read_chunk()
    reader.cancel()


def _read(caller: flight.FlightClient, name: str) -> None:
    assert read(caller, log=name).num_rows >= 10


def _look_up(caller: flight.FlightClient, name: str) -> None:
    writer, reader = caller.do_exchange(command(log=f"{name} by id"))
    keys = pa.table({"id": [3]})
    writer.begin(keys.schema)
    writer.write_table(keys)
    writer.done_writing()
    assert reader.read_all().num_rows == 1
    writer.close()


def _show(caller: flight.FlightClient, name: str) -> None:
    act(caller, "show", log=name)


@pytest.mark.parametrize(
    "call", [_append, _append_too_few, _append_without_a_log, _write, _tail_a_moment, _read, _look_up, _show]
)
def test_a_connection_takes_call_after_call_however_they_end(
    few_streams: Gateway, name: str, call: Callable[[flight.FlightClient, str], None]
) -> None:
    with connected(few_streams.port) as caller:
        put(caller, ROWS, log=name, create=True, rows=10)
        put(caller, ROWS, log=f"{name} by id", create=True, rows=10, partition_key=["id"], lanes=2)
        for _ in range(STREAMS + 8):
            call(caller, name)
            until(lambda: not few_streams.calls.all())
        [found] = act(caller, "show", log=name)
        assert json.dumps(found)
