"""Follows the rows of a log: gives what is confirmed, then waits for more. It never disturbs a writer.

``tail_plan.py`` says what can be read, ``tail_pace.py`` when to look again. While a leader has a ledger open, the wait is a
long poll at that ledger's bookies. Otherwise a watch of the log's head ends it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pyarrow as pa

from bk_spark.calls.gate import Gate
from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.log.rows.tail_pace import TailPace
from bk_spark.log.rows.tail_plan import Tailed, TailPlan
from bk_spark.log.spans.span_handle import ROWS_ALONE
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.log.stream.waits import RETRY_S
from bk_spark.rows.parts import whole_payloads


class RowTail:
    """An iterator over the rows of a log that waits for more at its end. One thread uses it at a time.

    It keeps the columns that the log had at its first row. It ends once nothing came for ``timeout_s``; None waits for ever.
    Raises LogReplacedError where the log's content is replaced, DataLossError where rows that it had not read yet were
    removed, and what reading raises, after ``PATIENCE_S`` if a retry can help. After an interrupt, or an error, it goes on
    behind the last row that it gave.
    """

    def __init__(self, plan: TailPlan, pace: TailPace) -> None:
        self._plan = plan
        self._pace = pace
        self._changed = Gate()
        """Is opened when the log's head changes: another one for each look."""
        self._batches = ResumedIterator(self._follow, plan.position)

    def __repr__(self) -> str:
        return f"<RowTail at {self.position}>"

    @property
    def position(self) -> str:
        """Behind the last row that was given: ``start`` of a later tail, or ``startingOffsets`` of a stream of Spark."""
        return self._plan.json_of(self._batches.place)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Wait for nothing more."""
        self._batches.close()

    def __enter__(self) -> RowTail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, position: StreamPosition) -> Generator[tuple[pa.RecordBatch | None, StreamPosition], None, None]:
        """From there on."""
        plan, pace = self._plan, self._pace
        plan.begin_at(position)
        pace.begin(time.monotonic())
        try:
            while True:
                try:
                    self._changed = Gate()
                    plan.watch(lambda: self._changed.open())
                    yield from self._news()
                    wait_s = pace.wait_s(time.monotonic(), leader=plan.open_ledger is not None)
                    if wait_s is None:
                        return
                    self._wait(wait_s)
                except BookKeeperError as problem:
                    if not pace.may_retry(problem, time.monotonic()):
                        raise
                    self._changed.wait(RETRY_S)
        finally:
            plan.close()

    def _news(self) -> Iterator[tuple[pa.RecordBatch | None, StreamPosition]]:
        look = self._plan.look()
        for stretch in look.stretches:
            for tailed in self._rows_of(stretch):
                self._plan.position = tailed.position
                yield tailed.rows, tailed.position
                if tailed.rows is not None:
                    self._pace.gave(time.monotonic())
        self._plan.position = look.end
        yield None, look.end

    def _rows_of(self, stretch: PlacedStretch) -> Iterator[Tailed]:
        ledger = self._plan.handle(stretch)
        try:
            if not isinstance(ledger, ROWS_ALONE):
                place = (stretch.first_entry_id, stretch.last_entry_id)
                payloads = whole_payloads(ledger.read_unconfirmed, stretch.ledger_id, *place)
                yield from self._plan.rows_of(stretch, payloads)
                return
        except NoSuchLedgerError:  # it left bookies meanwhile
            pass
        yield from self._plan.rows_without_payloads(stretch)

    def _wait(self, wait_s: float) -> None:
        ledger = self._plan.open_ledger
        if ledger is None:
            self._changed.wait(wait_s)
        elif not self._changed.is_open:
            ledger.wait_for_last_add_confirmed(ledger.last_add_confirmed, wait_s)
