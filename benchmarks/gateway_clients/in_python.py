"""The clients in Python, by Flight and without a gateway. Each call is for a process of its own, and gives back seconds."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.gateway_clients.rows import BATCH_ROWS, check_made, parts
from bk_spark import BookKeeper


def directly(uri: str, _: str, what: str, log: str, rows: int, commits: int) -> float:
    with BookKeeper(uri) as bookkeeper:
        if what == "append":
            opened, given = bookkeeper.open_log(log, create=True), list(parts(rows, commits))
            began_s = time.perf_counter()
            for part in given:
                opened.append_rows(part)
        elif what == "read":
            began_s = time.perf_counter()
            check(rows, sum(batch.num_rows for batch in bookkeeper.open_log(log).read_rows()))
        else:
            began_s = time.perf_counter()
            check_made(bookkeeper.open_log(log).read_rows(), rows)
        return time.perf_counter() - began_s


def by_gateway(_: str, address: str, what: str, log: str, rows: int, commits: int) -> float:
    with flight.connect(address) as caller:
        if what == "append":
            given = list(parts(rows, commits))
            began_s = time.perf_counter()
            for part in given:
                put(caller, part, log=log, create=True, rows=part.num_rows)
        elif what == "read":
            began_s = time.perf_counter()
            check(rows, sum(chunk.data.num_rows for chunk in caller.do_get(ticket(log))))
        else:
            began_s = time.perf_counter()
            check_made((chunk.data for chunk in caller.do_get(ticket(log))), rows)
        return time.perf_counter() - began_s


def check(wanted: int, found: int) -> None:
    if wanted != found:
        raise SystemExit(f"{found} rows came of {wanted}")


def ticket(log: str) -> flight.Ticket:
    return flight.Ticket(json.dumps({"log": log}).encode())


def put(caller: flight.FlightClient, given: pa.Table, /, **fields: object) -> None:
    writer, answers = caller.do_put(flight.FlightDescriptor.for_command(json.dumps(fields).encode()), given.schema)
    with writer:
        writer.write_table(given, max_chunksize=BATCH_ROWS)
        writer.done_writing()
        answers.read()
