"""Reads with ``view=latest`` beside a dictionary: a short round in memory (tests/soak/latest), and deliberate bugs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.by_key.plan import _Ages
from bk_spark.log.by_key.share import PlacedLedger
from bk_spark.log.rows.latest.chosen import ChosenRows
from bk_spark.log.rows.latest.view import LatestRows
from bk_spark.log.spans.span_handle import SpanHandle
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.rows.newest import newest_rows
from bk_spark.rows.where.filter import RowFilter
from tests.soak.latest.followers import StreamDifferenceError
from tests.soak.latest.history import Clock, DifferenceError, History
from tests.soak.latest.memory_cluster import URI, memory_cluster

HISTORIES = 12
"""Each takes some tenths of a second."""


def play(seed: int) -> None:
    clock = Clock()
    with memory_cluster(clock), BookKeeper(URI) as client:
        History(client, seed, clock, steps=5, reads=1).run()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_newest_rows_are_those_of_a_dictionary(seed: int) -> None:
    play(seed)


_split, _of, _placed = LatestRows.split, ChosenRows.of, SpanHandle._placed


def _everything_before(self: RowFilter, _: Collection[str]) -> tuple[RowFilter | None, RowFilter | None]:
    return self, None


def _no_tombstones(self: LatestRows, rows: pa.RecordBatch) -> tuple[Sequence[pa.Array], pa.Array | None]:
    return _split(self, rows)[0], None


def _nulls_as_a_value(column: pa.Array) -> pa.Array:
    return pa.array([repr(one) if one else "" for one in column.to_pylist()])


def _from_the_start(self: ChosenRows, stretch: int, _: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    return _of(self, stretch, 0, rows)


def _in_turn(_: object, rows: int) -> np.ndarray[Any, Any]:
    return np.arange(rows, dtype=np.uint64) << np.uint64(60)


def _all_of_it(self: SpanHandle, _first: int, _last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
    return _placed(self, 0, 2**62, asked)


def _first_ones(self: PlacedLedger, first: int, rows: pa.RecordBatch) -> np.ndarray[Any, Any]:
    return np.arange(first, first + rows.num_rows, dtype=np.int64)


BUGS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "all conditions are tested before the choice": (RowFilter, "divided", _everything_before),
    "tombstones are not looked at": (LatestRows, "split", _no_tombstones),
    "a null is an empty value": (newest_rows, "comparable", _nulls_as_a_value),
    "each batch is the first one of its stretch": (ChosenRows, "of", _from_the_start),
    "rows of one key go to several parts": (newest_rows, "hashes_of", _in_turn),
    "a part of a span is the whole": (SpanHandle, "_placed", _all_of_it),
    "each ledger of a span begins with its first number": (PlacedLedger, "places", _first_ones),
    "every row is old enough": (_Ages, "end_row_of", lambda self, _: self.head.end_row),
}
MET_BY = {
    "a null is an empty value": 6,
    "each batch is the first one of its stretch": 2,
    "rows of one key go to several parts": 17,
    "a part of a span is the whole": 2,
    "each ledger of a span begins with its first number": 2,
}
"""The first history that meets it, where that is not 0: the search begins there."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    first = MET_BY.get(bug, 0)
    assert any(map(_differs, range(first, first + 40)))


def _differs(seed: int) -> bool:
    try:
        play(seed)
    except (DifferenceError, StreamDifferenceError):
        return True
    return False
