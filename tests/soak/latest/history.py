"""One history of a log in memory: appends, overwrites, truncations, compactions by key and vacuums.

Reads after each of them are held against the model. Streams stop, and go on later.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa

from bk_spark import aio
from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.by_key import compact
from bk_spark.log.by_key import plan as by_key_plan
from bk_spark.log.by_key import share as by_key_share
from bk_spark.log.by_key.compact import KeyCompactor
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.rows import append_rows, read_rows
from bk_spark.log.rows.latest import chosen, reader, shares
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.values import Retention
from bk_spark.rows.newest.newest_rows import NewestRows
from tests.cluster.datasource.direct import Direct
from tests.soak.latest.conditions import Row, Where, drawn_where
from tests.soak.latest.followers import Follower
from tests.soak.latest.memory_cluster import URI
from tests.soak.latest.model import Model, drawn_model

STEPS, READS = 9, 2
STEP_WEIGHTS = {"append": 10, "overwrite": 1, "truncate": 1, "compact": 6, "vacuum": 5}
FOLLOWERS = 3
"""Streams at a time."""


class DifferenceError(AssertionError):
    """A read gave what the dictionary does not have."""


class Clock:
    """Of the metadata store. It stands between two steps."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: int) -> None:
        self.now_ms += 1000 * seconds


@dataclass(frozen=True)
class Asked:
    """One read: the arguments of ``read_rows``, and what tells the columns and rows that must come."""

    columns: list[str]
    where: Where | None
    deletes: bool
    arguments: dict[str, Any]
    """Version, lane, start and end."""

    def __str__(self) -> str:
        text = None if self.where is None else self.where.text
        return f"columns={self.columns}, where={text!r}, deletes={self.deletes}, {self.arguments}"


class History:
    """Drawn from ``seed``. ``run`` raises DifferenceError."""

    def __init__(self, client: BookKeeper, seed: int, clock: Clock, steps: int = STEPS, reads: int = READS) -> None:
        self._chance = random.Random(seed)
        self._clock = clock
        self._client = client
        self._log = client.open_log(f"latest-{uuid.uuid4().hex}", create=True)
        self._steps, self._reads = steps, reads
        self._model = drawn_model(self._chance)
        self._versions: dict[int, Model] = {}
        self._number = 0
        self._committed: dict[int, tuple[int, int]] = {}
        """The number of a row → when it was committed, and by which version."""
        self._followers: list[Follower] = []
        self.reads = 0

    def run(self) -> None:
        with small_bounds(self._chance):
            self._overwrite()
            for _ in range(self._steps):
                step = self._chance.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))[0]
                self._clock.pass_s(self._chance.choice((0, 1, 100)))
                {
                    "append": self._append,
                    "overwrite": self._overwrite,
                    "truncate": self._truncate,
                    "compact": self._compact,
                    "vacuum": self._vacuum,
                }[step]()
                for _ in range(self._reads):
                    self._read()
                self._follow()
            self._drain()

    # --- steps

    def _drawn(self, count: int) -> pa.Table:
        rows = self._model.drawn(self._chance, self._number, count)
        self._number += count
        self._model = self._model.with_rows(rows)
        return pa.Table.from_pylist(rows, self._model.schema)

    def _append(self, **options: Any) -> None:
        table = self._drawn(self._chance.choice((0, 1, 5, 30, 30, 200)))
        self._commit(self._log.append_rows(table, **options).version, table)

    def _overwrite(self) -> None:
        """With another key, of other lanes. Only Spark overwrites, and a log begins so, too."""
        self._drain()
        self._model = drawn_model(self._chance)
        table = self._drawn(self._chance.choice((1, 30, 100)))
        key, lanes = ",".join(one.name for one in self._model.key), self._chance.randint(2, 8)
        options = {"partitionKey": key, "lanes": lanes, "maxRowsPerEntry": self._chance.choice((3, 65_536))}
        Direct(URI).write(self._log.name, table.combine_chunks().to_batches()[0], overwrite=True, **options)
        self._commit(self._log.snapshot().version, table)

    def _commit(self, version: int, table: pa.Table) -> None:
        self._versions[version] = self._model
        self._committed |= dict.fromkeys(table.column("n").to_pylist(), (self._clock.now_ms, version))

    def _truncate(self) -> None:
        listed = self._log.snapshot().ledgers
        if len(listed) > 1:
            self._drain()
            self._log.truncate(LogPosition(self._chance.choice(listed[1:]).ledger_id, 0))
            self._model = self._model.only(self._numbers({}))
            self._versions[self._log.snapshot().version] = self._model

    def _compact(self) -> None:
        """Both ways to say how; with Spark's job its own tests do it. Others may do something while rows are written."""
        deletes, ages = self._chance.random() < 0.6, (0, 0, 1, 50, 150)
        asked = KeyCompaction("gone" if deletes else None, self._chance.choice(ages), self._chance.choice(ages))
        old, dead = self._compactable(asked.min_age_s), self._older(asked.tombstones_kept_s)
        meanwhile = self._chance.choice((None, None, self._append, self._vacuum, self._follow))
        with mock.patch.object(KeyCompactor, "_written", _doing(meanwhile, KeyCompactor._written)):
            if self._chance.random() < 0.5:
                self._log.set_compaction(asked)
                report = self._log.compact_by_key()
            else:
                report = self._log.compact_by_key(asked)
        compacted = self._model.compacted(old, dead & old, deletes=deletes)
        if len(compacted.rows) != len(self._model.rows) and not report.commits:
            raise DifferenceError(f"{asked} did nothing, and has {len(self._model.rows) - len(compacted.rows)} rows to remove")
        self._model = compacted
        if report.commits:
            self._versions[report.version] = compacted

    def _compactable(self, age_s: int) -> set[int]:
        """The rows so old; none if the log begins with a span that has a younger one, which stays as a whole then."""
        listed, old = self._log.snapshot().ledgers, self._older(age_s)
        if not listed or listed[0].span is None:
            return old
        behind = next((one for one in listed if one.span is None), None)
        in_span = self._numbers({} if behind is None else {"end": LogPosition(behind.ledger_id, 0)})
        return old if old.issuperset(in_span) else set()

    def _older(self, age_s: int) -> set[int]:
        """Rows that were committed so long ago. Those of one moment are not told apart by less than a second."""
        limit_ms = self._clock.now_ms - 1000 * age_s
        return {n for n in self._model.rows if age_s == 0 or self._committed[n][0] < limit_ms}

    def _vacuum(self) -> None:
        self._log.set_retention(Retention(version_retention_s=self._chance.choice((0, 0, 60))))
        self._clock.pass_s(1)
        oldest = self._client.vacuum_log(self._log.name).oldest_version
        self._versions = {version: model for version, model in self._versions.items() if version >= oldest}

    # --- streams

    def _follow(self) -> None:
        if len(self._followers) == FOLLOWERS:
            self._followers.pop(self._chance.randrange(FOLLOWERS))
        self._followers.append(Follower(self._log))
        for one in list(self._followers):
            if self._chance.random() < 0.5:
                one.poll(self._chance, self._chance.choice((1, 1, 2, None)))
            if self._chance.random() < 0.2:
                one.repeat(self._model)

    def _drain(self) -> None:
        """All streams read on to the end, and are over."""
        for one in self._followers:
            one.poll(self._chance, None)
            one.check_drained(self._model)
        self._followers = []

    # --- reads

    def _read(self) -> None:
        asked = self._asked()
        model = self._versions[asked.arguments.get("version", self._log.snapshot().version)]
        plain = self._numbers(asked.arguments)
        if not asked.arguments.keys() - {"version"} and set(plain) != set(model.rows):
            raise DifferenceError(f"the log holds {plain}, not {sorted(model.rows)}")
        expected = [
            {name: row[name] for name in asked.columns}
            for row in model.only(set(plain)).newest(asked.where, deletes=asked.deletes)
        ]
        way = self._chance.choice((self._by_log, self._by_log, self._by_coroutine, self._by_spark))
        found = way(asked)
        self.reads += 1
        if sorted(map(_shown, found)) != sorted(map(_shown, expected)):
            raise DifferenceError(f"{way.__name__}, {asked}:\nfound {found}\nexpected {expected}")

    def _asked(self) -> Asked:
        chance = self._chance
        arguments: dict[str, Any] = {}
        if chance.random() < 0.3:
            arguments["version"] = chance.choice(list(self._versions))
        model = self._versions[arguments.get("version", self._log.snapshot().version)]
        snapshot = self._log.snapshot(arguments.get("version"))
        if chance.random() < 0.3:
            arguments["lane"] = chance.sample(range(snapshot.lanes.count), chance.randint(1, 2))
        for side in ("start", "end"):
            if chance.random() < 0.15:
                arguments[side] = LogPosition(chance.choice(snapshot.ledgers).ledger_id, chance.randint(0, 2))
        names = model.schema.names
        columns = chance.sample(names, chance.randint(1, len(names))) if chance.random() < 0.6 else names
        where = drawn_where(chance, model.key) if chance.random() < 0.6 else None
        return Asked(columns, where, chance.random() < 0.5, arguments)

    def _numbers(self, arguments: dict[str, Any]) -> list[int]:
        """The rows that are read without a view."""
        numbers: list[int] = self._log.read_rows(["n"], **arguments).read_all().column("n").to_pylist()
        return numbers

    def _by_log(self, asked: Asked) -> list[Row]:
        rows: list[Row] = self._log.read_rows(**_arguments(asked)).read_all().to_pylist()
        return rows

    def _by_coroutine(self, asked: Asked) -> list[Row]:
        async def read() -> list[Row]:
            async with await aio.connect(URI) as client:
                log = await client.open_log(self._log.name)
                return [row async for batch in log.read_rows(**_arguments(asked)) for row in batch.to_pylist()]

        return asyncio.run(read())

    def _by_spark(self, asked: Asked) -> list[Row]:
        if not asked.arguments.keys().isdisjoint(("start", "end")):
            return self._by_log(asked)
        options: dict[str, Any] = {"view": "latest", "minPartitions": self._chance.choice((1, 3))}
        if asked.deletes:
            options["deletedBy"] = "GONE"
        if asked.where is not None:
            options["where"] = asked.where.text
        if "version" in asked.arguments:
            options["versionAsOf"] = asked.arguments["version"]
        if "lane" in asked.arguments:
            options["lane"] = ",".join(map(str, asked.arguments["lane"]))
        rows = Direct(URI).read(self._log.name, **options)
        return [{name: row[name] for name in asked.columns} for row in rows]


def _doing(meanwhile: Callable[[], None] | None, written: Callable[..., Any]) -> Callable[..., Any]:
    """Once, before what a compaction wrote is committed."""
    left = [meanwhile] if meanwhile is not None else []

    def then(*arguments: Any) -> Any:
        found = written(*arguments)
        while left:
            left.pop()()
        return found

    return then


def _arguments(asked: Asked) -> dict[str, Any]:
    where = None if asked.where is None else asked.where.text
    deleted_by = "gone" if asked.deletes else None
    return {"columns": asked.columns, "where": where, "view": "latest", "deleted_by": deleted_by, **asked.arguments}


def _shown(row: Row) -> str:
    return repr([_plain(value) for value in row.values()])


def _plain(value: Any) -> Any:
    """What is the same value is the same text."""
    if isinstance(value, Decimal):
        return ("decimal", str(value.normalize(Context(prec=40))))
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) and value.tzinfo else value


@contextmanager
def small_bounds(chance: random.Random) -> Iterator[None]:
    """Bounds in which a history of few rows has many entries, stretches and shares, and keys that go to files."""
    most = chance.choice((300, 2000, 64 << 20))
    patches: list[Callable[[], Any]] = [
        partial(mock.patch.object, chosen, "NewestRows", partial(NewestRows, most)),
        partial(mock.patch.object, by_key_share, "NewestRows", partial(NewestRows, most)),
        partial(mock.patch.object, by_key_plan, "shares", partial(shares.shares, target=chance.choice((1, 64 << 20)))),
        partial(mock.patch.object, compact, "MAX_ROWS_PER_ENTRY", chance.choice((2, 20, 65_536))),
        partial(mock.patch.object, append_rows, "MAX_ROWS_PER_ENTRY", chance.choice((2, 20, 65_536))),
        partial(mock.patch.object, read_rows, "STRETCH_BYTES", chance.choice((1, 2000, 8 << 20))),
        partial(mock.patch.object, reader, "shares", partial(shares.shares, target=chance.choice((1, 64 << 20)))),
    ]
    made = [patch() for patch in patches]
    for one in made:
        one.start()
    try:
        yield
    finally:
        for one in made:
            one.stop()
