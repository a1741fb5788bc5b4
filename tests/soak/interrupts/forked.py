"""Forks at random moments of a busy client: in the child every public call, and every future, ends at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from random import Random
from typing import Any

from bk_spark.client.ledger.arrivals import Key
from bk_spark.errors import ConfigError
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.case import LARGE
from tests.soak.interrupts.clients import open_client, store_in_memory
from tests.soak.interrupts.judge import DEADLINE_S, FoundError
from tests.soak.interrupts.writers import adv_ledger, ledger, log_writer, row_writer

CHILD_S = 1.0
"""A call in the child may take so long."""


class Forks:
    """Handles, two threads that append without a pause, and a client that is open."""

    def __init__(self, client: MemoryClient, chance: Random) -> None:
        self._client = client
        self._chance = chance
        self._ledger, self._log, self._rows, self._adv = (
            ledger(client),
            log_writer(client),
            row_writer(client),
            adv_ledger(client),
        )
        self._entry = self._ledger.append(b"x")
        self._reader = client.reader(self._ledger.metadata)
        with store_in_memory(client):
            self._other = open_client()
        self._never: Any = self._adv.append_async(5, b"waits for the entry before it")
        self._latest: list[Key] = []

    @property
    def ledger_id(self) -> int:
        """Of the ledger that a reader has open."""
        return self._ledger.ledger_id

    def play(self) -> str:
        """Fork once. Gives the name of the case; raises FoundError."""
        is_over = threading.Event()
        writing = [threading.Thread(target=self._write, args=(is_over, one)) for one in (self._ledger, self._log)]
        for one in writing:
            one.start()
        time.sleep(self._chance.uniform(0.0, 0.004))
        try:
            problem = self._in_child()
        finally:
            is_over.set()
            for one in writing:
                one.join()
        self._client.bookie.forget_all_but(self.ledger_id)
        if problem:
            raise FoundError(f"in a forked process {problem}")
        if self._ledger.append(b"the parent goes on") < 0 or self._rows.append({"i": 1}).entry_id < 0:
            raise FoundError("after a fork the parent's appends are not confirmed")
        return "a fork"

    def close(self) -> None:
        self._rows.close()
        self._log.close()
        self._other.close()

    def _write(self, is_over: threading.Event, writer: Any) -> None:
        while not is_over.is_set():
            future = writer.append_async(LARGE if self._chance.random() < 0.5 else b"x")
            self._latest = [*self._latest[-20:], future]

    def _in_child(self) -> str:
        """What is wrong there; empty: nothing."""
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writes, self._problem().encode())
            finally:
                os._exit(0)
        os.close(writes)
        said = b""
        os.set_blocking(reads, False)
        deadline_s = time.monotonic() + 4 * DEADLINE_S
        while time.monotonic() < deadline_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                said = os.read(reads, 10_000)
                os.close(reads)
                return said.decode() or (f"the child ends with {status}" if status else "")
            time.sleep(0.001)
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reads)
        return "something never ends"

    def _problem(self) -> str:
        for name, call in self._calls().items():
            began_s = time.monotonic()
            try:
                call()
            except ConfigError:
                pass
            except BaseException as problem:
                return f"{name} raises {problem!r}"
            else:
                return f"{name} raises nothing"
            if time.monotonic() - began_s > CHILD_S:
                return f"{name} takes {time.monotonic() - began_s:.1f} s"
        pending = [*self._latest, self._never]
        unanswered = [one for one in pending if not one.done() and not wait([one], 0).done]
        return f"{len(unanswered)} of {len(pending)} futures wait for ever" if unanswered else ""

    def _calls(self) -> dict[str, Callable[[], Any]]:
        one, log, rows, adv, reader = self._ledger, self._log, self._rows, self._adv, self._reader
        return {
            "append": lambda: one.append(b"y"),
            "append_async": lambda: one.append_async(b"y"),
            "append_batch": lambda: one.append_batch([b"y"]),
            "force": one.force,
            "close": one.close,
            "append of an id": lambda: adv.append(0, b"y"),
            "a future": lambda: self._never.result(CHILD_S),
            "append to a log": lambda: log.append(b"y"),
            "append_async to a log": lambda: log.append_async(b"y"),
            "append_batch to a log": lambda: log.append_batch([b"y"]),
            "roll": log.roll,
            "close of a log": log.close,
            "a row": lambda: rows.append({"i": 2}),
            "append_async of a row": lambda: rows.append_async({"i": 2}),
            "flush": rows.flush,
            "close of rows": rows.close,
            "a read": lambda: list(reader.read(0, 0)),
            "the last add confirmed": reader.read_last_add_confirmed,
            "a long poll": lambda: reader.wait_for_last_add_confirmed(1_000_000, 2.0),
            "a new client": open_client,
            "the client's ledgers": lambda: self._other.open_ledger(self._ledger.ledger_id),
            "a new ledger": self._other.create_ledger,
            "close of a client": self._other.close,
        }
