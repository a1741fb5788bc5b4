"""Deliberate bugs of a gateway, which the run must find."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bk_spark.gateway import service
from bk_spark.gateway.calls import appends, tails, writers

_append, _appended, _write = service.append, appends._appended, service.write
_numbers = itertools.count(1)


def _forget_the_application() -> None:
    appends._appended = lambda client, rows, asked: _appended(client, rows, replace(asked, application=None))


def _answer_before_the_commit() -> None:
    """Each third append is answered, and forgotten."""

    def append(client: Any, call: Any, messages: Any, asked: Any) -> bytes:
        if next(_numbers) % 3 or asked.create:
            return _append(client, call, messages, asked)
        rows = appends.WholeStream(call, messages, asked).reader().read_all()
        return json.dumps({"version": 1, "rows": rows.num_rows, "already": False}).encode()

    service.append = append


def _take_what_came_for_all() -> None:
    appends.WholeStream._check_end = lambda self: None  # type: ignore[method-assign]


def _append_one_row() -> None:
    """Of every tenth batch one row is appended."""
    append_async = writers.RowWriteHandle.append_async

    def append(self: Any, batch: Any) -> Any:
        return append_async(self, batch.slice(0, 1) if next(_numbers) % 10 == 0 else batch)

    writers.RowWriteHandle.append_async = append  # type: ignore[method-assign]


def _say_a_place_too_early() -> None:
    """A tail that goes on gives its first batch again."""

    def batches(self: Any) -> Any:
        before = None
        with self._tail as tail:
            for batch in tail:
                yield batch, before or tail.position
                before = tail.position

    tails.GatewayTail.__iter__ = batches  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "the application of an append is forgotten": _forget_the_application,
    "an append is answered and not committed": _answer_before_the_commit,
    "a stream that was cut off is committed": _take_what_came_for_all,
    "a batch is acknowledged of which one row is there": _append_one_row,
    "a tail names a place behind which it gives rows again": _say_a_place_too_early,
}
