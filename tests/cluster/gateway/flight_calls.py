"""Calls of Flight as a program in Python makes them, with pyarrow's own client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

DEADLINE_S = 30.0


def command(**fields: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def ticket(**fields: object) -> flight.Ticket:
    return flight.Ticket(json.dumps(fields).encode())


def connected(port: int, **how: Any) -> flight.FlightClient:
    """A client with a connection of its own."""
    return flight.connect(f"grpc://127.0.0.1:{port}", generic_options=[("grpc.use_local_subchannel_pool", 1)], **how)


def put(client: flight.FlightClient, given: pa.Table, /, *, end: bytes = b"", **fields: object) -> dict[str, Any]:
    """Appends; the answer of the gateway."""
    writer, answers = client.do_put(command(**fields), given.schema)
    try:
        writer.write_table(given, max_chunksize=300)
        if end:
            writer.write_metadata(end)
        writer.done_writing()
        answer = answers.read()
    finally:
        writer.close()
    return dict(json.loads(answer.to_pybytes()))


def act(client: flight.FlightClient, name: str, **fields: object) -> list[dict[str, Any]]:
    return [json.loads(one.body.to_pybytes()) for one in client.do_action(flight.Action(name, json.dumps(fields).encode()))]


def read(client: flight.FlightClient, **fields: object) -> pa.Table:
    return client.do_get(ticket(**fields)).read_all()


def table(first: int, count: int = 1000) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "item": [f"item {one}" for one in ids]})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
