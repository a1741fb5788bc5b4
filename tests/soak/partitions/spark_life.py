"""A Spark driver with its executors in one node: a stream into log A and one from A to B, while the network is cut.

A query that fails ends its driver, and the driver is started again from its checkpoint, as by a supervisor. What the logs hold
in the end is judged as in the test of streams whose processes are killed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.process import Keeper
from tests.soak.partitions.fabric import Node
from tests.soak.streams.checker import Source, differences
from tests.soak.streams.driver import COPY, LOGS, PRODUCE, Settings
from tests.soak.streams.processes import Supervised, kill_all, living
from tests.soak.streams.progress import last_batch
from tests.soak.streams.run import read_rows

SOURCE = Source(rows_per_batch=60, partitions=3, start_ms=1_000_000, advance_ms=1000)
TRIGGER_MS = 300
TICK_S = 0.1

FIRST_S = 300.0
"""For the first batch of the second log: a JVM starts, and then Python workers. On a busy machine that takes minutes."""

DRAIN_S = 240.0
"""For the driver to end once the network is whole: it may have to be started again, and to take what is left."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What the queries did. ``starts``: of the driver."""

    rows: int
    starts: int
    violations: list[str]

    def __str__(self) -> str:
        lines = [f"{self.rows} rows, the driver started {self.starts} times, {len(self.violations)} violations"]
        return "\n".join(lines + [f"  VIOLATED {one}" for one in self.violations])


class SparkLife:
    """``directory`` is an empty one for the checkpoints and what the logs hold in the end."""

    def __init__(self, keeper: Keeper, node: Node, metadata_uri: str, directory: Path) -> None:
        directory.mkdir()
        self._settings = Settings("driver", "local[2,4]", metadata_uri, str(directory), (PRODUCE, COPY), SOURCE, TRIGGER_MS)
        self._mark = uuid.uuid4().hex
        command = [*node.prefix, sys.executable, "-P", "-m", "tests.soak.streams.driver", self._settings.to_json()]
        self._driver = Supervised(keeper, node.name, command, directory / "driver.log", self._mark)
        self._ended = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The driver runs while it lasts, with both logs under way; its processes are gone afterwards."""
        self._supervisor.start()
        try:
            self._await_first_batch()
            yield
        finally:
            self._ended.set()
            self._supervisor.join()
            kill_all(living(self._mark))
            self._driver.close()

    def finish(self, client: BookKeeper) -> Streamed:
        """Once the network is whole: wait until the driver has taken what is left, judge the logs, and delete them."""
        self._driver.finish()
        self._settings.stop_file.touch()
        self._supervisor.join(DRAIN_S)
        if self._supervisor.is_alive():
            raise TimeoutError(f"the Spark driver did not end within {DRAIN_S:g} s: see {self._driver.log}")
        batches = last_batch(self._settings.checkpoint(PRODUCE) / "commits") + 1
        a, b = (read_rows(self._settings.contents(query)) for query in (PRODUCE, COPY))
        for log in LOGS.values():
            client.open_log(log).delete()
        found = differences("log A against the source", SOURCE.rows(batches), a) + differences("log B against log A", a, b)
        return Streamed(len(a), self._driver.starts, found)

    def _await_first_batch(self) -> None:
        deadline = time.monotonic() + FIRST_S
        while last_batch(self._settings.checkpoint(COPY) / "commits") < 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no batch within {FIRST_S:g} s, without any fault: see {self._driver.log}")
            time.sleep(TICK_S)

    def _supervise(self) -> None:
        """Until the driver has done what it was told to, or the life ends."""
        while not self._driver.is_done and not self._ended.wait(TICK_S):
            self._driver.expect_fall()
            self._driver.tick()
