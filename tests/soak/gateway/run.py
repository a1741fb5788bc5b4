"""One run: callers append, write and follow through two gateways that are killed, and repeat at the other one what failed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from bk_spark import BookKeeper
from tests.cluster.gateway.flight_calls import command, connected, ticket
from tests.soak.gateway.lives import GatewayLives
from tests.soak.gateway.model import SCHEMA, Model, Name, listed, rows_of

LOGS = ("orders", "payments", "shipments")
STREAMED = "streamed"
"""The log of the continuous writer."""
STREAMED_ROWS = 20
MOST_BATCHES = 500
"""Of one continuous call."""
WRITERS = 4
ROWS = 400
"""Of the largest append."""
CHUNK_ROWS = 50
AT_REST = 60
"""Appends while both gateways live: some of them are sent again, or to both at once."""
CALL_S = 60.0
"""A call that takes longer has failed, and its outcome is unknown."""
FOLLOWED_S = 5.0
"""After so long the tail goes on at the other gateway."""
PAUSE_S = 0.1
"""Before the next try, where both gateways may be dead."""
TRIES = 400
"""Of one append, some 40 s with both gateways dead."""

FAILED = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightInternalError, flight.FlightServerError)
"""What a caller is told of a gateway that died. Where it is the gateway itself that says so, it is a difference."""
OWN_FAILURE = "the gateway failed at this call"


class Run:
    def __init__(self, uri: str, seed: int, bug: str = "") -> None:
        self._uri = uri
        self._chance = random.Random(seed)
        self._model = Model()
        self._lives = [GatewayLives(uri, bug, seed * 2 + place, self._model.differs) for place in range(2)]
        self._over = threading.Event()
        self._tailed: list[tuple[str, int, int]] = []
        self._place: Any = "earliest"

    def play(self, kills: int) -> Model:
        with BookKeeper(self._uri) as client:
            for log in (*LOGS, STREAMED):
                client.append_rows(log, rows_of((log, 0), 1), create=True)
            for log in LOGS:
                self._model.begin((log, 0), log, 1)
                self._model.acknowledge((log, 0), 1, already=False)
            seeds = [self._chance.random() for _ in range(WRITERS)]
            workers = [self._writer(f"writer-{number}", seed) for number, seed in enumerate(seeds)]
            threads = [threading.Thread(target=self._guarded, args=(one,)) for one in (*workers, self._stream, self._follow)]
            try:
                for thread in threads:
                    thread.start()
                self._kill(kills)
            finally:
                for life in self._lives:
                    life.live_on()
                self._await_appends(AT_REST)
                self._over.set()
                for thread in threads:
                    thread.join()
                for life in self._lives:
                    life.stop()
            try:
                self._check_end(client)
            finally:
                for life in self._lives:
                    life.kill()
        return self._model

    def _await_appends(self, count: int) -> None:
        """Until so many more were acknowledged, where nobody is killed any more."""
        wanted, until_s = self._model.counts["acknowledged"] + count, time.monotonic() + CALL_S
        while self._model.counts["acknowledged"] < wanted and time.monotonic() < until_s:
            time.sleep(0.05)

    def _kill(self, kills: int) -> None:
        """Half of them for each gateway, which live side by side."""
        shares = [kills // 2, kills - kills // 2]
        killers = [
            threading.Thread(target=life.be_killed, args=(share, self._over))
            for life, share in zip(self._lives, shares, strict=True)
        ]
        for one in killers:
            one.start()
        for one in killers:
            one.join()
        self._model.count("gateways killed from outside", sum(life.killed for life in self._lives))
        self._model.count("gateways that died at a call", sum(life.died for life in self._lives))

    # Appends

    def _writer(self, writer: str, seed: float) -> Callable[[], None]:
        def work() -> None:
            chance, number = random.Random(seed), 0
            while not self._over.is_set():
                number += 1
                self._append(chance, (writer, number))

        return work

    def _append(self, chance: random.Random, name: Name) -> None:
        """Until it is acknowledged; one of eight is given up after its first failure, and some are sent again behind it."""
        is_new = chance.random() < 0.05
        log = f"new-{name[0]}-{name[1]}" if is_new else chance.choice(LOGS)
        has_number = chance.random() < 0.85
        gives_up = not has_number or chance.random() < 0.15
        self._model.begin(name, log, rows := chance.randint(1, ROWS))
        fields: dict[str, Any] = {"log": log, "create": is_new, "rows": rows}
        if has_number:
            fields["application"] = [name[0], name[1]]
        place = chance.randrange(2)
        if chance.random() < 0.1:
            self._cut_off(place, name, fields)
        if has_number and chance.random() < 0.1:
            self._at_both(name, fields)
        for _ in range(TRIES):
            if self._send(place, name, fields):
                break
            if gives_up:
                self._model.count("given up")
                return
            self._model.count("repeated at the other gateway")
            place = 1 - place
            self._over.wait(PAUSE_S)
        else:
            self._model.differs(f"append {name} was not acknowledged in {TRIES} tries")
            return
        if has_number and chance.random() < 0.2 and self._send(1 - place, name, fields):
            self._model.count("sent again behind its acknowledgement")

    def _at_both(self, name: Name, fields: dict[str, Any]) -> None:
        """At once."""
        self._model.count("sent to both gateways at once")
        other = threading.Thread(target=self._guarded_send, args=(1, name, fields))
        other.start()
        self._send(0, name, fields)
        other.join()

    def _guarded_send(self, place: int, name: Name, fields: dict[str, Any]) -> None:
        try:
            self._send(place, name, fields)
        except Exception as problem:
            self._model.differs(f"append {name}: {type(problem).__name__} {problem}")

    def _cut_off(self, place: int, name: Name, fields: dict[str, Any]) -> None:
        """A stream that ends one row too early, as that of a caller that has died."""
        try:
            if self._put(place, fields, rows_of(name, fields["rows"] - 1)) is not None:
                self._model.differs(f"append {name} lacked a row, and was acknowledged")
        except pa.ArrowInvalid as problem:
            if "nothing was appended" not in str(problem):
                raise
            self._model.count("streams cut off")
        except FAILED as problem:
            self._note(problem)

    def _send(self, place: int, name: Name, fields: dict[str, Any]) -> bool:
        """Whether it was acknowledged."""
        try:
            said = self._put(place, fields, rows_of(name, fields["rows"]))
        except FAILED as problem:
            self._note(problem)
            return False
        if said is None:
            return False
        self._model.acknowledge(name, said["version"], already=said["already"])
        if said["rows"] != fields["rows"] or (said["already"] and "application" not in fields):
            self._model.differs(f"append {name} of {fields['rows']} rows was answered by {said}")
        return True

    def _put(self, place: int, fields: dict[str, Any], rows: pa.Table) -> dict[str, Any] | None:
        """The answer; None where the call ended without one, and without an error."""
        options = flight.FlightCallOptions(timeout=CALL_S)
        with connected(self._lives[place].port) as caller:
            writer, answers = caller.do_put(command(**fields), rows.schema, options)
            try:
                writer.write_table(rows, max_chunksize=CHUNK_ROWS)
                writer.done_writing()
                answer = answers.read()
            finally:
                writer.close()
            return None if answer is None else dict(json.loads(answer.to_pybytes()))

    def _note(self, problem: Exception) -> None:
        self._model.count(f"failed: {type(problem).__name__}")
        if OWN_FAILURE in str(problem):
            self._model.differs(f"{type(problem).__name__}: {problem}")

    # The continuous writer, and the tail

    def _stream(self) -> None:
        number, place = 0, 0
        while not self._over.is_set():
            try:
                with connected(self._lives[place].port) as caller:
                    self._write(caller, number)
            except FAILED as problem:
                self._note(problem)
                self._over.wait(PAUSE_S)
            place, number = 1 - place, number + MOST_BATCHES

    def _write(self, caller: flight.FlightClient, first: int) -> None:
        """Batches until it fails, each acknowledged before the next. None is sent again."""
        writer, answers = caller.do_put(command(log=STREAMED, continuous=True), SCHEMA)
        try:
            for number in range(first, first + MOST_BATCHES):
                writer.write_batch(rows_of(("streamed", number), STREAMED_ROWS).to_batches()[0])
                answer = answers.read()
                if answer is None or self._over.is_set():
                    break
                self._model.kept.add(("streamed", number))
            writer.done_writing()
        finally:
            writer.close()

    def _follow(self) -> None:
        """A tail that goes on at the other gateway behind the last batch of which it knows the place."""
        place = 0
        while not self._over.is_set():
            try:
                with connected(self._lives[place].port) as caller:
                    self._tail(caller, FOLLOWED_S, self._over.is_set)
            except FAILED as problem:
                self._note(problem)
            place = 1 - place
            self._over.wait(PAUSE_S)

    def _tail(self, caller: flight.FlightClient, seconds: float, is_done: Callable[[], bool]) -> None:
        options = flight.FlightCallOptions(timeout=seconds)
        tail = caller.do_get(ticket(log=LOGS[0], tail=True, start=self._place), options)
        waiting: list[pa.RecordBatch] = []
        while not is_done():
            chunk = tail.read_chunk()
            waiting.append(chunk.data)
            if chunk.app_metadata is not None:
                self._place = json.loads(chunk.app_metadata.to_pybytes())["next"]
                self._tailed += listed(waiting)
                waiting = []
        tail.cancel()

    # The end

    def _check_end(self, client: BookKeeper) -> None:
        there = set(client.list_logs())
        for log in self._model.logs():
            if log in there:
                opened = client.open_log(log)
                self._model.check(log, opened.read_rows(), {one.version: one.added.rows for one in opened.versions()})
            else:
                self._model.check(log, [], {})
        self._model.check_continuous(STREAMED, client.open_log(STREAMED).read_rows(), STREAMED_ROWS)
        self._check_tail(listed(client.open_log(LOGS[0]).read_rows()))

    def _check_tail(self, wanted: list[tuple[str, int, int]]) -> None:
        self._lives[0].live_on()
        with connected(self._lives[0].port) as caller, suppress(flight.FlightTimedOutError):
            if len(self._tailed) < len(wanted):
                self._tail(caller, CALL_S, lambda: len(self._tailed) >= len(wanted))
        if self._tailed != wanted:
            place = next((n for n, pair in enumerate(zip(self._tailed, wanted, strict=False)) if len(set(pair)) > 1), "the end")
            self._model.differs(
                f"the tail gave {len(self._tailed)} rows, the log has {len(wanted)}: they differ from {place} on"
            )
        self._model.count("rows that the tail gave", len(self._tailed))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:
            self._model.differs(f"{type(problem).__name__}: {problem}")
