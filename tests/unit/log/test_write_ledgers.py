"""The ledgers of one task: one for each lane with payloads, all written in one pass, with a bound on what is unconfirmed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.errors import LedgerClosedError
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.write_ledger import write_ledgers


class Bookies:
    """Confirms what its ledgers append when somebody waits for it."""

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.unconfirmed = 0
        self.most_unconfirmed = 0
        self._ids = itertools.count(10)

    def create(self, lane: int) -> Any:
        self.ledgers.append(Ledger(self, next(self._ids)))
        return self.ledgers[-1]


class Append(Future[tuple[int, int]]):
    def __init__(self, bookies: Bookies, nbytes: int, last: int) -> None:
        super().__init__()
        self._bookies, self._nbytes, self._last = bookies, nbytes, last

    def result(self, timeout: float | None = None) -> tuple[int, int]:
        if not self.done():
            self._bookies.unconfirmed -= self._nbytes
            self.set_result((0, self._last))
        return super().result(timeout)


class Ledger:
    def __init__(self, bookies: Bookies, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.payloads: list[bytes] = []
        self.closed = 0
        self._bookies = bookies

    @property
    def length(self) -> int:
        return sum(map(len, self.payloads))

    def append_batch_async(self, payloads: CheckedPayloads) -> Append:
        self.payloads += payloads.array.to_pylist()
        nbytes = int(payloads.sizes.sum())
        self._bookies.unconfirmed += nbytes
        self._bookies.most_unconfirmed = max(self._bookies.most_unconfirmed, self._bookies.unconfirmed)
        return Append(self._bookies, nbytes, len(self.payloads) - 1)

    def close(self) -> None:
        self.closed += 1


def payload(lane: int, *payloads: bytes, rows: int = 1) -> tuple[int, pa.BinaryArray, int]:
    return lane, pa.array(payloads, pa.binary()), rows


def test_each_lane_has_a_ledger_of_its_own_and_they_are_given_by_lane() -> None:
    bookies = Bookies()
    payloads = [payload(5, b"a", b"bb", rows=7), payload(2, b"c"), payload(5, b"d", rows=3)]
    assert write_ledgers(bookies.create, payloads, 1 << 20) == (
        CommittedLedger(11, 0, 1, 1, 2),
        CommittedLedger(10, 2, 4, 10, 5),
    )
    assert [(one.payloads, one.closed) for one in bookies.ledgers] == [([b"a", b"bb", b"d"], 1), ([b"c"], 1)]


def test_without_payloads_there_is_no_ledger() -> None:
    bookies = Bookies()
    assert write_ledgers(bookies.create, [], 1 << 20) == ()
    assert bookies.ledgers == []


@pytest.mark.parametrize("lanes", [2, 100])
def test_what_is_unconfirmed_in_all_lanes_together_is_bounded(lanes: int) -> None:
    bookies = Bookies()
    written = write_ledgers(bookies.create, (payload(number % lanes, b"x" * 100) for number in range(1000)), 500)
    assert sum(one.rows for one in written) == 1000
    assert bookies.most_unconfirmed <= 500 + 2 * 100


def test_one_ledger_waits_by_its_own_window_alone() -> None:
    bookies = Bookies()
    write_ledgers(bookies.create, (payload(0, b"x" * 100) for _ in range(100)), 500)
    assert bookies.most_unconfirmed == 100 * 100


def test_a_failure_closes_the_ledgers_of_all_lanes_and_is_raised() -> None:
    bookies = Bookies()

    def payloads() -> Iterator[tuple[int, pa.BinaryArray, int]]:
        yield payload(0, b"a")
        yield payload(1, b"b")
        raise RuntimeError("upstream")

    def fail() -> None:
        raise LedgerClosedError(10, "orders")

    create = bookies.create

    def create_one_that_does_not_close(lane: int) -> Any:
        ledger = create(lane)
        if ledger.ledger_id == 10:
            ledger.close = fail
        return ledger

    with pytest.raises(RuntimeError, match="upstream"):
        write_ledgers(create_one_that_does_not_close, payloads(), 1 << 20)
    assert bookies.ledgers[1].closed == 1
