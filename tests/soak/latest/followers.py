"""Streams over a history: stopped anywhere, gone on with later, whatever was compacted and vacuumed meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bk_spark import aio
from bk_spark.log.log_handle import Log
from bk_spark.log.stream.positions import Offset
from tests.cluster.datasource.direct import Direct, micro_batch
from tests.soak.latest.memory_cluster import URI
from tests.soak.latest.model import Model


class StreamDifferenceError(AssertionError):
    """A stream gave a row twice, or missed one that is left."""


@dataclass
class Follower:
    """A stream that began before the first row. ``read`` has the numbers of the rows that it gave."""

    log: Log
    position: str = "earliest"
    read: list[int] = field(default_factory=list)
    batch: tuple[Offset, Offset, list[int]] | None = None
    """The last micro-batch of Spark's, which may be repeated."""

    def poll(self, chance: random.Random, most: int | None) -> None:
        """Read some batches, in one of the ways; all there are if ``most`` is None."""
        chance.choice((self._by_tail, self._by_coroutine, self._by_spark))(chance, most)
        if len(set(self.read)) != len(self.read):
            twice = sorted({one for one in self.read if self.read.count(one) > 1})
            raise StreamDifferenceError(f"the stream at {self.position} read {twice} twice")

    def check_drained(self, model: Model) -> None:
        """It has read all that is there."""
        missed = set(model.rows) - set(self.read)
        if missed:
            raise StreamDifferenceError(f"the stream at {self.position} missed {sorted(missed)}")

    def repeat(self, model: Model) -> None:
        """The last micro-batch once more, as after a restart: what is left of it, no row twice."""
        if self.batch is None:
            return
        start, end, before = self.batch
        again = micro_batch(Direct(URI).stream(self.log.name), start, end, "n")
        lacking, more = (set(before) & set(model.rows)) - set(again), set(again) - set(before)
        if lacking or more or len(set(again)) != len(again):
            raise StreamDifferenceError(f"the batch from {start} to {end} had {before}, and has {again} when it is repeated")

    def _by_tail(self, _: random.Random, most: int | None) -> None:
        with self.log.tail_rows(self.position, ["n"], timeout_s=0) as tail:
            for batch in itertools.islice(tail, most):
                self._add(batch.column("n").to_pylist())
                self.position = tail.position
            if most is None:
                self.position = tail.position

    def _by_coroutine(self, _: random.Random, most: int | None) -> None:
        async def follow() -> None:
            async with await aio.connect(URI) as client:
                log, given = await client.open_log(self.log.name), 0
                async with log.tail_rows(self.position, ["n"], timeout_s=0) as tail:
                    async for batch in tail:
                        self._add(batch.column("n").to_pylist())
                        self.position, given = tail.position, given + 1
                        if given == most:
                            return
                    self.position = tail.position

        asyncio.run(follow())

    def _by_spark(self, chance: random.Random, most: int | None) -> None:
        limit = chance.choice(({}, {"maxRowsPerTrigger": chance.choice((1, 3, 20))}, {"maxBytesPerTrigger": 500}))
        stream = Direct(URI).stream(self.log.name, startingOffsets="earliest", minPartitions=chance.choice((1, 3)), **limit)
        start: Offset = stream.initialOffset() if self.position == "earliest" else json.loads(self.position)
        stream.prepareForTriggerAvailableNow()
        for _ in itertools.count() if most is None else range(most):
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            if end == start:
                return
            rows = micro_batch(stream, start, end, "n")
            self._add(rows)
            self.batch = start, end, rows
            start = end
            self.position = json.dumps({key: value for key, value in end.items() if key != "start"})

    def _add(self, numbers: Iterable[Any]) -> None:
        self.read += numbers
