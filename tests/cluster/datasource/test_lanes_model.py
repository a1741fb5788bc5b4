"""A log with keys beside a simple model: random writes, overwrites, truncations and reads give what a list of rows gives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.rows.lanes import lane_of
from tests.cluster.datasource.direct import Direct, micro_batches

STEPS = 8
NAMES = [None, "", "a", "b", "ab", "äöü"]

Row = tuple[int | None, str | None, int]
"""Two columns that may be the key, and a number that no other row has."""


@dataclass
class Model:
    """What the log holds: the rows of each commit, task after task, and how they are spread."""

    key: tuple[str, ...]
    count: int
    commits: list[list[Row]] = field(default_factory=list)

    def lane(self, row: Row) -> int:
        values: dict[str, Any] = {"id": row[0], "name": None if row[1] is None else row[1].encode()}
        return lane_of([values[name] for name in self.key], self.count)

    def rows(self, lanes: set[int]) -> list[Row]:
        """Commit after commit, and in each lane after lane."""
        return [row for commit in self.commits for row in sorted(commit, key=self.lane) if self.lane(row) in lanes]


@dataclass
class Play:
    """Random steps on a log and its model."""

    direct: Direct
    bookkeeper: BookKeeper
    log: str
    chance: random.Random
    model: Model
    number: int = 0

    def drawn(self) -> list[Row]:
        rows = []
        for _ in range(self.chance.choice([0, 1, 3, 200])):
            rows.append((self.chance.choice([None, *range(6)]), self.chance.choice(NAMES), self.number))
            self.number += 1
        return rows

    def write(self, *, overwrite: bool = False) -> None:
        tasks = [self.drawn() for _ in range(self.chance.randint(1, 3))]
        options: dict[str, Any] = {"maxRowsPerEntry": self.chance.choice([7, 65536])}
        if overwrite or not self.model.commits:
            self.model = Model(
                tuple(self.chance.sample(["id", "name"], self.chance.randint(1, 2))), self.chance.choice([2, 3, 8, 256])
            )
            options |= {"partitionKey": ",".join(self.model.key), "lanes": self.model.count}
        self.direct.write(self.log, *map(batch_of, tasks), overwrite=overwrite, **options)
        self.model.commits.append([row for task in tasks for row in task])

    def truncate(self) -> None:
        """Of whole ledgers: a lane of a commit may go, and another one stay."""
        listed = self.bookkeeper.logs.reader.snapshot(self.log).ledgers
        if len(listed) < 2:
            return
        place = self.chance.randrange(1, len(listed))
        logs = self.bookkeeper.logs
        logs.truncate(self.log, logs.names.uid(self.log), listed[place].ledger_id)
        left = sum(map(len, self.model.commits)) - sum(one.rows for one in listed[:place])
        kept = set(self.model.rows(set(range(self.model.count)))[-left:])
        self.model.commits = [[row for row in commit if row in kept] for commit in self.model.commits]

    def check(self) -> None:
        everything = set(range(self.model.count))
        assert self.read() == self.model.rows(everything)
        some = set(self.chance.sample(sorted(everything), min(3, self.model.count)))
        assert self.read(lane=",".join(map(str, some))) == self.model.rows(some)
        text, holds = self.condition()
        assert self.read(where=text) == [row for row in self.model.rows(everything) if holds(row)]
        limit = {"maxRowsPerTrigger": self.chance.choice([20, 100, 1000])}
        stream = self.direct.stream(self.log, startingOffsets="earliest", lane=min(some), **limit)
        numbers = [n for _, _, rows in micro_batches(stream, "n") for n in rows]
        assert numbers == [row[2] for row in self.model.rows({min(some)})]

    def condition(self) -> tuple[str, Any]:
        row = self.chance.choice([(2, "a", 0), (None, "", 0), (9, None, 0), (0, "äöü", 0)])
        parts = {"id": f"id <=> {'NULL' if row[0] is None else row[0]}", "name": f"name <=> {spelt(row[1])}"}
        names = self.chance.sample(["id", "name"], self.chance.randint(1, 2))
        place = {"id": 0, "name": 1}
        return " AND ".join(parts[name] for name in names), lambda one: all(
            one[place[name]] == row[place[name]] for name in names
        )

    def read(self, **options: Any) -> list[Row]:
        return [(row["id"], row["name"], row["n"]) for row in self.direct.read(self.log, **options)]


def spelt(name: str | None) -> str:
    return "NULL" if name is None else f"'{name}'"


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    ids, names, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string()), "n": pa.array(numbers, pa.int64())}
    return pa.record_batch(columns)


MANY_LANES = pytest.mark.nightly(
    held_by="tests/cluster/datasource/test_lanes_model.py::test_a_log_with_keys_holds_what_a_list_of_rows_holds,"
    "tests/cluster/datasource/test_lanes.py"
)
"""Seed 0 draws 256 lanes, where each write makes hundreds of ledgers; the other seeds hold the rest."""


@pytest.mark.parametrize("seed", [pytest.param(0, marks=MANY_LANES), 1, 2])
def test_a_log_with_keys_holds_what_a_list_of_rows_holds(direct: Direct, bookkeeper: BookKeeper, log, seed: int) -> None:
    play = Play(direct, bookkeeper, log, random.Random(seed), Model((), 1))
    play.write()
    for _ in range(STEPS):
        step = play.chance.choices([play.write, lambda: play.write(overwrite=True), play.truncate], [6, 1, 1])[0]
        step()
        play.check()
