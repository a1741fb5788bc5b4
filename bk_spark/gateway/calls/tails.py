"""Tails of logs: rows as they are confirmed, without an end.

A tail keeps the columns that the log has when it begins: Flight sends them first. Each batch says where a later tail goes on.
It ends with its call, at the next look at the latest: while it waits for rows it looks once a second.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError
from bk_spark.gateway.calls.open_calls import LOOK_S, OpenCall
from bk_spark.gateway.flight.requests import AskedTail
from bk_spark.log.log_handle import tail_plan
from bk_spark.log.rows.read_rows import RowQuery
from bk_spark.log.rows.tail_pace import TailPace
from bk_spark.log.rows.tail_rows import RowTail


class _CallPace(TailPace):
    """That of a tail which ends once nobody waits for its rows. What ``look`` raises ends it, too."""

    def __init__(self, call: OpenCall) -> None:
        super().__init__(None)
        self._call = call

    def wait_s(self, now_s: float, *, leader: bool) -> float | None:
        if self._call.is_over:
            return None
        self._call.look()
        wait_s = super().wait_s(now_s, leader=leader)
        return None if wait_s is None else min(wait_s, LOOK_S)

    def may_retry(self, problem: BookKeeperError, now_s: float) -> bool:
        self._call.look()
        return not self._call.is_over and super().may_retry(problem, now_s)


class GatewayTail:
    """One tail. ``next`` gives each batch, and the position behind it as JSON."""

    def __init__(self, client: BookKeeper, asked: AskedTail, call: OpenCall) -> None:
        """Raises as ``Log.tail_rows`` and ``Log.schema``."""
        log, rows = client.open_log(asked.log), asked.rows
        query = RowQuery(rows.columns, rows.where, rows.time_zone, rows.lane)
        plan = tail_plan(log, query, asked.start, asked.overwrites)
        self.schema: pa.Schema = plan.bind(log.schema)
        self._tail = RowTail(plan, _CallPace(call))

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        with self._tail as tail:
            for batch in tail:
                yield batch, tail.position


def tail_schema(client: BookKeeper, asked: AskedTail) -> pa.Schema:
    """What it would give. Raises as ``GatewayTail``."""
    log, rows = client.open_log(asked.log), asked.rows
    query = RowQuery(rows.columns, rows.where, rows.time_zone, rows.lane)
    return query.bound(log.name, log.schema).schema
