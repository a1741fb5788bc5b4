"""One history of six logs in memory: transactions and writes with option ``logColumn``, and reads of several logs between."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError
from tests.cluster.datasource.direct import Direct
from tests.soak.latest.memory_cluster import URI, memory_cluster
from tests.soak.several.column import ColumnStep
from tests.soak.several.model import RefusedError, Version, read_together
from tests.soak.several.others import make_some
from tests.soak.several.shapes import NUMBER, Row, shown_row
from tests.soak.several.stage import DifferenceError, Stage, bounds, check_refusal, standing_clock
from tests.soak.several.transaction import TransactionStep

STEPS, READS = 8, 1


class History:
    """Drawn from ``seed``. ``run`` raises DifferenceError."""

    def __init__(self, seed: int, steps: int = STEPS, reads: int = READS) -> None:
        self._chance = random.Random(seed)
        self._steps, self._reads = steps, reads
        self.commits = self.reads = 0

    def run(self) -> None:
        with memory_cluster(), standing_clock(lambda: self._stage.now_ms), BookKeeper(URI) as client:
            self._stage = stage = Stage(client, self._chance)
            with bounds(stage):
                make_some(stage)
                for _ in range(self._steps):
                    with stage.step():
                        self._chance.choice((TransactionStep, ColumnStep))(stage).play()
                    for _ in range(self._reads):
                        self._read()
                    self.commits = stage.committed_transactions + stage.written

    def _read(self) -> None:
        chance, world = self._chance, self._stage.world
        names = chance.sample(self._stage.names if chance.random() < 0.1 else list(world.logs) or ["none"], 1)
        names += [one for one in world.logs if one not in names and chance.random() < 0.5]
        time_ms = self._drawn_time() if chance.random() < 0.5 else None
        timestamp = None if time_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
        self.reads += 1
        why = None if set(names) <= world.logs.keys() else RefusedError("there is no such log")
        try:
            found = self._stage.client.versions_of(names, timestamp)
        except BookKeeperError as problem:
            check_refusal(problem, why, names)
            return
        expected = {
            name: len(world.logs[name].versions) - 1 if time_ms is None else world.logs[name].at(time_ms) for name in names
        }
        if found != expected:
            raise DifferenceError(f"{names} at {time_ms} are at {found}, not at {expected}")
        self._read_rows(names, [world.logs[name].versions[number] for name, number in found.items()], time_ms, timestamp)
        if chance.random() < 0.5:
            self._read_alone(chance.choice(names))

    def _drawn_time(self) -> int:
        """Mostly the time of a version, or just beside it."""
        times = [one.time_ms for log in self._stage.world.logs.values() for one in log.versions]
        return self._chance.choice(times or [0]) + self._chance.choice((0, 0, -1, 1))

    def _read_rows(
        self, names: Sequence[str], versions: Sequence[Version], time_ms: int | None, timestamp: datetime | None
    ) -> None:
        least = self._chance.randrange(100) if self._chance.random() < 0.3 else None
        where = None if least is None else f"{NUMBER} >= {least}"
        found: list[Row]
        try:
            if self._chance.random() < 0.3:
                found = self._by_spark(names, time_ms, where)
            else:
                found = self._stage.client.read_rows(names, where=where, timestamp=timestamp).read_all().to_pylist()
        except BookKeeperError as problem:
            check_refusal(problem, self._refusal(versions))
            return
        columns = read_together(versions)
        rows = [row for one in versions for row in one.rows if least is None or row[NUMBER] >= least]
        expected = [shown_row(row, columns) for row in rows]
        if found != expected or (found and list(found[0]) != list(columns)):
            raise DifferenceError(f"{names} at {time_ms} where {where}:\nfound {found}\nexpected {expected}")

    def _refusal(self, versions: Sequence[Version]) -> RefusedError | None:
        try:
            read_together(versions)
        except RefusedError as why:
            return why
        return None

    def _by_spark(self, names: Sequence[str], time_ms: int | None, where: str | None) -> list[Row]:
        options: dict[str, Any] = {} if where is None else {"where": where}
        options |= {} if time_ms is None else {"timestampAsOf": time_ms}
        return Direct(URI).read(None, paths=json.dumps(list(names)), minPartitions=self._chance.choice((1, 3)), **options)

    def _read_alone(self, name: str) -> None:
        """One log at one of its versions."""
        versions = self._stage.world.logs[name].versions
        number = self._chance.randrange(len(versions))
        if versions[number].content == "rows":
            found = self._stage.client.open_log(name).read_rows(version=number).read_all().to_pylist()
            expected = [shown_row(row, versions[number].columns) for row in versions[number].rows]
            if found != expected:
                raise DifferenceError(f"log '{name}' at version {number}:\nfound {found}\nexpected {expected}")
