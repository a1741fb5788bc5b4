"""When rows that wait are due."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.rows.row_buffer import RowBuffer, RowCall, RowLimits


def call(name: str, rows: int = 1) -> RowCall[str]:
    return RowCall([pa.record_batch([pa.array(range(rows), pa.int64())], names=["n"])] if rows else [], name)


def buffer(max_rows: int = 10, max_bytes: int = 1000) -> RowBuffer[str]:
    return RowBuffer(RowLimits("orders", max_rows, max_bytes, 0.5))


def test_rows_are_due_once_the_first_of_them_has_waited_long_enough() -> None:
    waiting = buffer()
    waiting.add(call("a"), 100.0)
    waiting.add(call("b"), 100.4)
    assert (waiting.due_s, waiting.is_full, waiting.is_empty) == (100.5, False, False)
    assert [one.future for one in waiting.take()] == ["a", "b"]
    assert waiting.is_empty
    waiting.add(call("c"), 101.0)
    assert waiting.due_s == 101.5


@pytest.mark.parametrize("limits", [{"max_rows": 6}, {"max_bytes": 48}], ids=str)
def test_a_buffer_is_full_at_either_limit_and_empty_again_when_it_is_taken(limits: dict[str, int]) -> None:
    waiting = buffer(**limits)
    waiting.add(call("a", 5), 0.0)
    assert not waiting.is_full
    waiting.add(call("b", 1), 0.0)
    assert waiting.is_full
    waiting.take()
    assert not waiting.is_full
    assert waiting.take() == []


def test_a_flush_is_a_call_without_rows_that_keeps_its_place() -> None:
    waiting = buffer(max_rows=1)
    waiting.add(call("flush", 0), 0.0)
    assert (waiting.is_empty, waiting.is_full) == (False, False)
    waiting.add(call("a"), 0.0)
    assert [one.future for one in waiting.take()] == ["flush", "a"]


@pytest.mark.parametrize(
    "wrong",
    [(0, 1, 0.1), (1, 2**40, 0.1), (True, 1, 0.1), (1, 1, -1), (1, 1, True), (1, 1, 3601), (1, 1, float("nan"))],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(ConfigError, match="max_"):
        RowLimits("orders", *wrong)
