"""What a case of an option works with, and the table of cases: one for each option, which fails if the option is ignored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.cluster.datasource.direct import Direct, micro_batches
from tests.unit.datasource.batches import numbers, wait_until


@dataclass(frozen=True)
class World:
    """A cluster, and a log that no other case uses."""

    direct: Direct
    bookkeeper: BookKeeper
    log: str

    def write(self, *values: int, **options: Any) -> None:
        self.direct.write(self.log, numbers(*values), **options)

    def read(self, **options: Any) -> list[int]:
        return self.direct.column(self.log, **options)

    def parts(self, **options: Any) -> int:
        return len(self.direct.reader(self.log, **options).partitions())

    def batches(self, **options: Any) -> list[list[int]]:
        return [rows for _, _, rows in micro_batches(self.direct.stream(self.log, **options))]

    def ledger(self, place: int = -1) -> CommittedLedger:
        return self.bookkeeper.logs.reader.snapshot(self.log).ledgers[place]

    def lanes(self) -> Lanes:
        return self.bookkeeper.logs.reader.snapshot(self.log).lanes

    def metadata(self) -> LedgerMetadata:
        """Of the ledger that was written last."""
        return self.bookkeeper.ledger_metadata(self.ledger().ledger_id)

    def start(self) -> str:
        return json.dumps(self.direct.stream(self.log, startingOffsets="earliest").initialOffset())

    def end(self) -> str:
        """Behind all that there is."""
        ends = [end for _, end, _ in micro_batches(self.direct.stream(self.log, startingOffsets="earliest"))]
        assert ends
        return json.dumps(ends[-1])

    def committed_ms(self) -> int:
        """When the log was committed to last; not now any more when this returns."""
        at = self.bookkeeper.logs.reader.all_versions(self.log)[-1].time_ms
        wait_until(lambda: time.time() * 1000 > at + 1)
        return at

    def truncate(self, place: int) -> None:
        logs = self.bookkeeper.logs
        logs.truncate(self.log, logs.names.uid(self.log), self.ledger(place).ledger_id)


Case = Callable[[World], None]
CASES: dict[str, Case] = {}


def case(option: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[option] = function
        return function

    return add
