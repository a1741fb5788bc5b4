"""The net: interrupts one call after the other, at one step or moment after the other, and judges what is left."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from tests.soak.interrupts import clients, readers, writers
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.case import CONFIG, LARGE, Case
from tests.soak.interrupts.clients import store_in_memory
from tests.soak.interrupts.coroutines import AsyncCase, Coroutines
from tests.soak.interrupts.forked import Forks
from tests.soak.interrupts.injection import Interruption
from tests.soak.interrupts.judge import DEADLINE_S, Resources, in_time, until

CASES: tuple[Case, ...] = (*writers.CASES, *readers.CASES, *clients.CASES)
SIGNALS, CANCELS, FORKS = 0.2, 0.2, 0.02
"""The shares of real signals, of cancelled coroutines and of forks, which take long. All else is interrupted at a step."""


class Net:
    """On one client. ``play`` raises FoundError."""

    def __init__(self, seed: int = 1) -> None:
        self.client = MemoryClient(CONFIG)
        self.played = 0
        self._chance = random.Random(seed)
        self._steps: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        self._coroutines = Coroutines(self.client, self._chance)
        self._forks = Forks(self.client, self._chance)
        self._resources = Resources()

    def steps(self, case: Case) -> int:
        """How many there are."""
        if case.name not in self._steps:
            interruption = Interruption(0)
            self._made(case, interruption.during)
            self._steps[case.name] = interruption.steps
        return self._steps[case.name]

    def play(self) -> str:
        """One case of some kind, which it names. In the main thread."""
        drawn, case = self._chance.random(), self._chance.choice(CASES)
        if drawn < SIGNALS:
            self.signal(case)
            return "signals"
        if drawn < SIGNALS + CANCELS:
            self.cancel()
            return "cancelled coroutines"
        if drawn < SIGNALS + CANCELS + FORKS:
            self.fork()
            return "forks"
        self.interrupt(case, self._chance.randint(1, self.steps(case)))
        return "interrupted steps"

    def interrupt(self, case: Case, step: int) -> None:
        """At a step of it."""
        self.played += 1
        self._made(replace(case, name=f"{case.name}, interrupted at step {step}"), Interruption(step).during)

    def signal(self, case: Case) -> None:
        """By a real signal at some moment of it. In the main thread."""
        self.played += 1
        if case.name not in self._seconds:
            began_s = time.perf_counter()
            self._made(case, lambda call: call())
            self._seconds[case.name] = time.perf_counter() - began_s
        after_s = self._chance.uniform(1e-6, self._seconds[case.name])
        self._made(replace(case, name=f"{case.name}, signal after {after_s:.6f} s"), lambda call: _signalled(call, after_s))

    def cancel(self, case: AsyncCase | None = None) -> None:
        """A coroutine at some await."""
        self.played += 1
        name = self._coroutines.play(case)
        self._resources.check(name)

    def fork(self) -> None:
        """The process, at some moment."""
        self.played += 1
        self._resources.check(self._forks.play())

    def close(self) -> None:
        self._forks.close()
        self._coroutines.close()
        self.client.context.close()

    def _made(self, case: Case, during: Callable[[Callable[[], Any]], Any]) -> None:
        with store_in_memory(self.client):
            self._make(case, during)
        self._resources.check(case.name)  # once nobody holds what was made
        self.client.bookie.forget_all_but(self._forks.ledger_id)

    def _make(self, case: Case, during: Callable[[Callable[[], Any]], Any]) -> None:
        subject = case.make(self.client)
        others = self._fill(subject) if case.is_full else []
        with suppress(KeyboardInterrupt):
            during(lambda: case.call(subject))
        for other in others:
            in_time(lambda other=other: other.result(DEADLINE_S), f"{case.name}: an append before it")  # type: ignore[misc]
        result = in_time(lambda: case.after(subject), f"{case.name}: what comes after it")
        case.check(self.client, subject, result, case.name)

    def _fill(self, writer: Any) -> list[Any]:
        """The bookies stand still until just after the call has begun to wait."""
        bookie = self.client.bookie
        bookie.stand_still()
        others = [writer.append_async(LARGE) for _ in range(2)]
        until(lambda: bool(bookie.held), lambda: "nothing was sent")
        threading.Timer(0.002, bookie.go_on).start()
        return others


def _signalled(call: Callable[[], Any], after_s: float) -> None:
    is_inside = False

    def interrupt(*_: object) -> None:
        if is_inside:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        is_inside = True
        call()
        is_inside = False
    finally:
        is_inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the client logs of errors that are made here."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
