"""Callers that die, stop, lie or come in numbers: nothing of an unfinished append stays, and a gateway holds a bounded part."""

from __future__ import annotations

import json
import logging
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bk_spark.errors import AccessRefusedError, UnauthenticatedError
from bk_spark.gateway.flight.messages import SERVICE
from bk_spark.gateway.open_access import OpenAccess
from bk_spark.gateway.rights import CallerIdentity, Right
from bk_spark.gateway.server import Gateway
from bk_spark.gateway.settings import GatewayConfig
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.telemetry.metrics import GATEWAY_STALLED
from tests.budget import IS_SOAK
from tests.cluster.gateway.flight_calls import act, command, connected, put, read, table, ticket, until

CALLERS = 300 if IS_SOAK else 25

ROWS_OF_ONE = 3000


@contextmanager
def gateway_of(bookkeeper, access=None, **config) -> Iterator[Gateway]:
    with Gateway(bookkeeper, access or OpenAccess(), GatewayConfig(**config)) as gateway:
        yield gateway


def test_callers_that_are_killed_leave_their_whole_append_or_nothing(gateway, bookkeeper, name) -> None:
    """And what was answered is there, once."""
    bookkeeper.open_log(name, create=True).append_rows(pa.table({"caller": [-1]}))
    program = [sys.executable, "-m", "tests.cluster.gateway.dying_callers", str(gateway.port), name, str(CALLERS), "1"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=500, check=True)
    answered = {int(line) for line in done.stdout.split() if line.isdigit()}
    assert done.stdout.endswith("done\n"), done.stderr
    until(lambda: not gateway.calls.all())
    found = Counter(bookkeeper.open_log(name).read_rows().read_all()["caller"].to_pylist())
    assert found.pop(-1) == 1
    assert set(found.values()) <= {ROWS_OF_ONE}
    assert answered <= found.keys()
    assert 0 < len(answered) < CALLERS


def test_an_append_that_is_repeated_after_its_answer_was_lost_is_there_once(gateway, bookkeeper, name) -> None:
    with connected(gateway.port) as caller:
        writer, _ = caller.do_put(command(log=name, create=True, rows=1000, application=["a", 7]), table(0).schema)
        writer.write_table(table(0))
        writer.done_writing()
        until(lambda: name in bookkeeper.list_logs() and len(bookkeeper.open_log(name).versions()) == 1)
    with gateway_of(bookkeeper) as another, connected(another.port) as caller:
        answer = put(caller, table(0), log=name, create=True, rows=1000, application=["a", 7])
        assert answer == {"version": 1, "rows": 1000, "already": True}
        assert read(caller, log=name).num_rows == 1000


def test_a_silent_append_is_ended_and_leaves_nothing(bookkeeper, name, caplog) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    with gateway_of(bookkeeper, silence_s=1.0) as gateway, connected(gateway.port) as caller:
        writer, answers = caller.do_put(command(log=name, create=True, rows=2000), table(0).schema)
        writer.write_table(table(0))
        assert answers.read() is None  # until the call has ended
        with pytest.raises(flight.FlightTimedOutError, match="nothing came for 1 s"):
            writer.close()
        assert name not in bookkeeper.list_logs()
        until(lambda: not gateway.calls.all())
    [line] = [one.message for one in caplog.records if one.name == AUDIT_LOGGER]
    assert line.startswith(f'event=limited limit=silence_s identity="anonymous" log="{name}" peer=127.0.0.1:')


def test_a_reader_that_stops_is_ended_and_gives_back_its_call(bookkeeper, name) -> None:
    bookkeeper.open_log(name, create=True).append_rows(_random_rows(32 << 20))
    ended = GATEWAY_STALLED._value.get()
    with gateway_of(bookkeeper, stall_s=1.0, max_calls_per_identity=1) as gateway, connected(gateway.port) as caller:
        reader = caller.do_get(ticket(log=name))
        reader.read_chunk()
        until(lambda: GATEWAY_STALLED._value.get() > ended)
        with connected(gateway.port) as other:
            until(lambda: not gateway.calls.all())
            assert act(other, "health") == [{"state": "serving"}]
        with pytest.raises(flight.FlightError, match="took nothing for"):
            reader.read_all()


def _random_rows(nbytes: int) -> pa.Table:
    return pa.table({"wide": np.random.default_rng(1).integers(0, 2**62, nbytes // 8)})


def test_calls_and_tails_above_the_limits_are_refused_by_name_and_taken_again_later(bookkeeper, name) -> None:
    bookkeeper.open_log(name, create=True).append_rows(table(0))
    with (
        gateway_of(bookkeeper, max_calls_per_identity=3, max_tails_per_identity=2) as gateway,
        connected(gateway.port) as caller,
    ):
        tails = [caller.do_get(ticket(log=name, tail=True, start="earliest")) for _ in range(2)]
        for tail in tails:
            tail.read_chunk()
        with pytest.raises(pa.ArrowInvalid, match="anonymous has 2 tails open, as many as it may"):
            caller.do_get(ticket(log=name, tail=True)).read_chunk()
        writer, answers = caller.do_put(command(log=name, continuous=True), table(0).schema)
        writer.write_table(table(0, 1))
        answers.read()
        with pytest.raises(pa.ArrowInvalid, match="anonymous has 3 calls open, as many as it may"):
            act(caller, "health")
        for tail in tails:
            tail.cancel()
        until(lambda: len(gateway.calls.all()) == 1)
        assert act(caller, "health") == [{"state": "serving"}]
        writer.done_writing()
        writer.close()


def test_a_message_above_the_limit_is_refused_before_it_is_in_memory(bookkeeper, name) -> None:
    with gateway_of(bookkeeper, max_batch_bytes=1 << 20) as gateway, connected(gateway.port) as caller:
        writer, answers = caller.do_put(command(log=name, create=True, rows=1 << 20), _random_rows(8).schema)
        with pytest.raises(pa.ArrowInvalid, match="larger than max"):
            _write(writer, answers, _random_rows(8 << 20))
        assert name not in bookkeeper.list_logs()


def _write(writer, answers, rows: pa.Table) -> None:
    try:
        writer.write_table(rows)
    finally:
        writer.close()
    answers.read()


def test_a_rate_holds_for_all_calls_of_an_identity_together(bookkeeper, name) -> None:
    rows = _random_rows(2 << 20)
    bookkeeper.open_log(name, create=True).append_rows(rows)
    with gateway_of(bookkeeper, bytes_per_s=2 << 20) as gateway, connected(gateway.port) as caller:
        began = time.monotonic()
        assert read(caller, log=name).equals(rows)
        put(caller, rows, log=name, rows=rows.num_rows)
        assert time.monotonic() - began > 1.5


def test_garbage_is_answered_by_a_status_and_holds_no_call(gateway) -> None:
    chance, seen, told = random.Random(1), Counter(), []
    ticket_of = json.dumps({"log": "orders"}).encode()
    with grpc.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
        for _ in range(200 if IS_SOAK else 40):
            method = chance.choice(["DoGet", "DoPut", "DoExchange", "DoAction", "GetFlightInfo", "GetSchema", "ListFlights"])
            message = bytearray(b"\x0a" + bytes([len(ticket_of)]) + ticket_of)
            for _ in range(chance.randrange(1, 6)):
                message[chance.randrange(len(message))] = chance.randrange(256)
            call = channel.stream_stream(f"/{SERVICE}/{method}")(iter([bytes(message)] * chance.randrange(1, 3)), timeout=20)
            with suppress(grpc.RpcError):
                list(call)
            seen[call.code().name] += 1
            told.append(call.details() or "")
    assert set(seen) <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert [one for one in told if "Traceback" in one or "/bk_spark/" in one] == []
    until(lambda: not gateway.calls.all())


def test_hundreds_of_connections_without_a_call_take_no_thread(gateway, caller) -> None:
    opened = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(300)]
    try:
        assert act(caller, "health") == [{"state": "serving"}]
        assert not gateway.calls.all()
    finally:
        for one in opened:
            one.close()


class SomeRights:
    """Access of a test: one token, which may be revoked, and one log."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.rights = {Right.READ}

    def identify(self, token: str | None, certificate: str | None, peer: str) -> CallerIdentity:
        if token != "good":
            raise UnauthenticatedError("its token is not known")
        return CallerIdentity("token", "reader")

    def check(self, identity: CallerIdentity, right: Right, log: str, peer: str = "") -> None:
        if log != self.log or right not in self.rights:
            raise AccessRefusedError(str(identity), right.value, log)

    def may_see(self, identity: CallerIdentity, log: str) -> bool:
        return log == self.log


def test_a_caller_may_do_what_is_granted_sees_nothing_else_and_loses_its_tail_with_its_right(bookkeeper, name) -> None:
    bookkeeper.open_log(name, create=True).append_rows(table(0))
    access = SomeRights(name)
    good = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer good")])
    with gateway_of(bookkeeper, access) as gateway, connected(gateway.port) as caller:
        for bad in (None, b"Bearer bad", b"Basic Z29vZA=="):
            options = flight.FlightCallOptions(headers=[(b"authorization", bad)] if bad else [])
            with pytest.raises(flight.FlightUnauthenticatedError, match="does not know whose call this is"):
                list(caller.list_flights(options=options))
        assert [one.descriptor.path for one in caller.list_flights(options=good)] == [[name.encode()]]
        refusals = []
        for log in (name + "-none", f"other-{name}"):
            with pytest.raises(flight.FlightUnauthorizedError) as refused:
                caller.do_get(ticket(log=log), good).read_all()
            refusals.append(str(refused.value).replace(log, "LOG").partition(" gRPC client")[0])
        assert refusals[0] == refusals[1]
        with pytest.raises(flight.FlightUnauthorizedError, match="token:reader has no right to append"):
            caller.do_put(command(log=name, rows=1), table(0).schema, good)[0].close()
        with pytest.raises(flight.FlightUnauthorizedError, match="no right to manage"):
            list(caller.do_action(flight.Action("delete", json.dumps({"log": name}).encode()), good))
        tail = caller.do_get(ticket(log=name, tail=True, start="earliest"), good)
        assert tail.read_chunk().data.num_rows == 1000
        access.rights.clear()
        with pytest.raises(flight.FlightUnauthorizedError, match="no right to read"):
            tail.read_chunk()


def test_a_gateway_that_stops_tells_its_callers_to_call_another_one(bookkeeper, name) -> None:
    bookkeeper.open_log(name, create=True).append_rows(table(0))
    with gateway_of(bookkeeper) as gateway, connected(gateway.port) as caller:
        tail = caller.do_get(ticket(log=name, tail=True, start="earliest"))
        tail.read_chunk()
        gateway.stop()
        with pytest.raises(flight.FlightUnavailableError, match="it stops: call another one"):
            tail.read_chunk()
