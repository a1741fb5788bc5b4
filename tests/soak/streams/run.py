"""One run: queries over a cluster, kills as planned, then the end that the checker judges.

::

    rate-micro-batch → query "produce" → log A → query "copy" → log B
    event logs of all drivers → examples/tail_event_log.py → one log each

Every kill waits for its moment, and the next one until both queries have committed a batch that began after it.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.process import Keeper
from tests.checkout import ROOT
from tests.soak.chaos.faults import Bookie, start_again
from tests.soak.streams.checker import Row, differences
from tests.soak.streams.driver import COPY, LOGS, PRODUCE, Settings
from tests.soak.streams.forms import Form, SparkMaster, Store
from tests.soak.streams.plan import BOOKIE, DRIVER, EXECUTOR, READER, TAILER, WORKER, Kill
from tests.soak.streams.processes import Seen, Supervised, await_end, kill_all, living
from tests.soak.streams.progress import Standing, Watched

QUERIES = (PRODUCE, COPY)
TICK_S = 0.01
RECOVERY_S = 180.0
"""For the next batch of both queries after a kill: a driver needs some ten seconds, on a busy machine several times that."""
DRAIN_S = 240.0
BOOKIE_DOWN_S = (2.0, 15.0)
PREFIX = "events-"

COMMANDS = {
    EXECUTOR: "CoarseGrainedExecutorBackend",
    WORKER: "pyspark.daemon pyspark.worker",
    READER: "python_streaming_source_runner",
}
"""What the command line of a victim holds."""

STANDALONE = ("deploy.master.Master", "deploy.worker.Worker")
"""Processes that end after the run."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A kill as it was done: ``met`` is what it interrupted, of a driver read off its checkpoint."""

    kill: Kill
    at_s: float
    met: str

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.kill.victim} at '{self.kill.moment}': {self.met}"


@dataclass(slots=True)
class Outcome:
    """What a run found. ``violations`` is empty if it held."""

    blows: list[Blow] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    batches: int = 0
    rows: int = 0
    applications: int = 0
    lines: int = 0
    dropped: int = 0
    """Batches that came again and were dropped as duplicates."""
    seconds: float = 0.0


class Run:
    """The processes of one run, all of which end with it. ``directory`` keeps their logs."""

    def __init__(self, directory: Path, form: Form, store: Store, spark: SparkMaster, seed: int) -> None:
        self.directory = directory
        self.outcome = Outcome()
        self._form = form
        self._store = store
        self._master = spark.url
        self._chosen = random.Random(seed)
        self._started = time.monotonic()
        self._mark = spark.mark
        self._down: tuple[Bookie, float] | None = None
        events = Path(self._settings(0).events)
        events.mkdir(parents=True)
        with contextlib.ExitStack() as undo:
            self._client = undo.enter_context(BookKeeper(store.metadata_uri))
            self._keeper = undo.enter_context(Keeper(directory, temporary=False))
            undo.callback(self._end_all)
            self._drivers = [self._driver(self._settings(index)) for index in range(len(form.drivers))]
            self._tailer = self._tail(events)
            self._undo = undo.pop_all()
        self._queries = [
            Watched(self._client, store.metadata_uri, LOGS[query], self._settings(0).checkpoint(query)) for query in QUERIES
        ]
        self._events = events
        self._stop_files = [self._settings(index).stop_file for index in range(len(form.drivers))]
        self._contents = [self._settings(0).contents(query) for query in QUERIES]

    def play(self, kills: tuple[Kill, ...]) -> Outcome:
        """All of it, in order."""
        before = [Standing(-1, -1, -1)] * len(QUERIES)
        self._await_batches(before, "the start")
        for kill in kills:
            self._strike(kill)
        self._drain()
        self._judge()
        self.outcome.seconds = time.monotonic() - self._started
        return self.outcome

    def _settings(self, index: int) -> Settings:
        form, uri = self._form, self._store.metadata_uri
        queries = form.drivers[index]
        return Settings(f"driver-{index}", self._master, uri, str(self.directory), queries, form.source, form.trigger_ms)

    def _driver(self, settings: Settings) -> Supervised:
        command = [sys.executable, "-P", "-m", "tests.soak.streams.driver", settings.to_json()]
        return Supervised(self._keeper, settings.name, command, self.directory / f"{settings.name}.log", self._mark)

    def _tail(self, events: Path) -> Supervised:
        program = str(ROOT / "examples" / "tail_event_log.py")
        command = [sys.executable, program, str(events), "--metadata", self._store.metadata_uri, "--prefix", PREFIX]
        return Supervised(self._keeper, "tailer", command, self.directory / "tailer.log", self._mark)

    # --- kills

    def _strike(self, kill: Kill) -> None:
        query = self._queries[kill.query]
        before = query.stands()
        self._await(
            lambda: query.stands().reached(kill.moment, before), f"no moment '{kill.moment}' for a kill of a {kill.victim}"
        )
        time.sleep(kill.delay_s)
        if kill.victim == BOOKIE:
            met = self._kill_bookie()
        elif kill.victim == TAILER:
            met = self._kill_tailer()
        elif kill.victim == DRIVER:
            met = self._kill_driver(kill.query)
        else:
            met = self._kill_one(COMMANDS[kill.victim])
        self.outcome.blows.append(Blow(kill, time.monotonic() - self._started, met))
        print(self.outcome.blows[-1], flush=True)
        self._await_batches([one.stands() for one in self._queries], f"the kill of a {kill.victim} at '{kill.moment}'")
        for one in (*self._drivers, self._tailer):
            one.expect_life()

    def _kill_driver(self, query: int) -> str:
        """JVM first, and Python at once: nobody stops anything in an orderly way. Its Python workers live on for a while."""
        [driver] = [one for one, queries in zip(self._drivers, self._form.drivers, strict=True) if QUERIES[query] in queries]
        driver.expect_fall()
        kill_all(one for one in living(self._mark) if one.parent == driver.pid and "SparkSubmit" in one.command)
        driver.close()
        return self._queries[query].stands().describes

    def _kill_tailer(self) -> str:
        self._tailer.expect_fall()
        self._tailer.close()
        return "appending, or at rest"

    def _kill_one(self, command: str) -> str:
        """Any process with that command line: it may fail a query, not more than that."""
        found: list[Seen] = []

        def is_there() -> bool:
            found[:] = [one for one in living(self._mark) if command in one.command]
            return bool(found)

        self._await(is_there, f"no process {command}")
        for driver in self._drivers:
            driver.expect_fall()
        kill_all([self._chosen.choice(sorted(found, key=lambda one: one.pid))])
        return f"one of {len(found)} processes"

    def _kill_bookie(self) -> str:
        self._revive_bookie(at_once=True)
        bookie = self._chosen.choice(self._store.bookies)
        bookie.kill()
        down_s = self._chosen.uniform(*BOOKIE_DOWN_S)
        self._down = (bookie, time.monotonic() + down_s)
        return f"{bookie.bookie_id}, for {down_s:.1f} s"

    def _revive_bookie(self, at_once: bool) -> None:
        if self._down and (at_once or time.monotonic() >= self._down[1]):
            start_again(self._down[0], self._store.metadata_uri)
            self._down = None

    # --- waiting

    def _await_batches(self, since: list[Standing], after: str) -> None:
        """Until each query has committed a batch that was not even planned at ``since``."""

        def came() -> bool:
            return all(one.stands().noted > then.planned for one, then in zip(self._queries, since, strict=True))

        self._await(came, f"no progress of both queries after {after}")

    def _await(self, condition: Callable[[], bool], problem: str, limit_s: float = RECOVERY_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            self._tick()
            if time.monotonic() > deadline:
                stands = [one.stands() for one in self._queries]
                raise TimeoutError(f"{problem} in {limit_s:g} s: {stands}; all logs are in {self.directory}")
            time.sleep(TICK_S)

    def _tick(self) -> None:
        self._revive_bookie(at_once=False)
        for one in (*self._drivers, self._tailer):
            one.tick()

    # --- the end

    def _drain(self) -> None:
        """Producer first: the copier has all of A to take, then."""
        for driver, stop_file in zip(self._drivers, self._stop_files, strict=True):
            driver.finish()
            stop_file.touch()
            self._await(lambda driver=driver: driver.is_done, f"{driver.name} did not end", DRAIN_S)
        self._revive_bookie(at_once=True)
        self._tailer.ask_to_end()
        self._await(lambda: self._tailer.is_done, "the tailer did not end", DRAIN_S)

    def _judge(self) -> None:
        found = self.outcome
        found.batches = self._queries[0].stands().noted + 1
        expected = self._form.source.rows(found.batches)
        a, b = (read_rows(path) for path in self._contents)
        found.rows = len(a)
        found.dropped = sum(query.dropped() for query in self._queries)
        found.violations += differences("log A against the source", expected, a)
        found.violations += differences("log B against log A", a, b)
        found.violations += self._judge_events()
        for query, name in zip(self._queries, QUERIES, strict=True):
            stands = query.stands()
            if not stands.planned == stands.sunk == stands.noted:
                found.violations.append(f"query {name} ended, and log and checkpoint disagree: {stands}")
        found.violations += [end for one in (*self._drivers, self._tailer) for end in one.unexplained]
        found.violations += [f"left over: process {one.pid}, {one.command[:200]}" for one in await_end(self._mark, STANDALONE)]

    def _judge_events(self) -> list[str]:
        told = []
        for path in sorted(self._events.iterdir()):
            if path.name.startswith("."):
                continue
            lines = path.read_bytes().split(b"\n")[:-1]
            log = PREFIX + path.name.removesuffix(".inprogress")
            payloads = [payload for batch in self._client.open_log(log).read() for payload in batch["payload"].to_pylist()]
            told += differences(f"log {log} against its file", lines, payloads)
            self.outcome.applications += 1
            self.outcome.lines += len(payloads)
        return told

    def _end_all(self) -> None:
        kill_all(living(self._mark))

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_rows(path: Path) -> list[Row]:
    """What a driver left of a log."""
    table = pyarrow.feather.read_table(path)
    times = pc.cast(table["timestamp"], pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    return list(zip(times, table["value"].to_pylist(), strict=True))
