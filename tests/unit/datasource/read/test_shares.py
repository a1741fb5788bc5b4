"""How logs share the limits of a micro-batch, on logs of entries of given sizes."""

from __future__ import annotations

import pytest

from bk_spark.datasource.read.batch_limits import Admitted, Limits, admitted
from bk_spark.datasource.read.shares import in_turn, share_out
from bk_spark.log.stored.values import Content
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.positions import StreamPosition, behind


class Log:
    """A log of one ledger; each of its entries has so many rows, of 10 bytes each."""

    def __init__(self, rows_per_entry: int, entries: int) -> None:
        self.rows_per_entry = rows_per_entry
        self.entries = entries
        self.read = 0
        self.position: StreamPosition = behind(0)

    def take(self, limits: Limits, least: int) -> Admitted:
        found = admitted(self.stretches(), self.position, limits, self, least=least)  # type: ignore[arg-type]
        if not found.is_nothing:
            self.position, self.read = found.end, found.end.entry_id
        return found

    def stretches(self) -> list[PlacedStretch]:
        left = self.entries - self.read
        rows = left * self.rows_per_entry
        place = (1, 0, 7, self.read, self.entries - 1)
        return [PlacedStretch(*place, rows, 10 * rows, None, Content.ROWS, 1, self.read == 0)] if left else []

    def rows(self, ledger_id: int, first: int, last: int) -> list[int]:
        return [self.rows_per_entry] * (last - first + 1)

    def length_up_to(self, ledger_id: int, entry_id: int) -> int:
        return 10 * self.rows_per_entry * (entry_id + 1)


def batch(logs: dict[str, Log], limits: Limits, last_first: str | None = None) -> dict[str, int]:
    """The rows that each log gives one batch."""
    before = {name: log.read for name, log in logs.items()}
    order = in_turn([name for name, log in logs.items() if log.read < log.entries], last_first)
    share_out(order, limits, lambda name, part, least: logs[name].take(part, least))
    return {name: (log.read - before[name]) * log.rows_per_entry for name, log in logs.items()}


@pytest.mark.parametrize("limits", [Limits(100, None), Limits(None, 1000), Limits(100, 100_000), Limits(100_000, 1000)])
def test_each_log_gets_an_equal_share_and_what_one_does_not_use_goes_to_the_others(limits: Limits) -> None:
    assert batch({"a": Log(10, 2), "b": Log(10, 50), "c": Log(10, 50)}, limits) == {"a": 20, "b": 40, "c": 40}
    assert batch({"a": Log(10, 50), "b": Log(10, 2), "c": Log(10, 2)}, limits) == {"a": 60, "b": 20, "c": 20}
    assert batch({"a": Log(10, 50)}, limits) == {"a": 100}


def test_the_first_log_takes_an_entry_out_of_all_limits_if_its_share_has_room_for_none() -> None:
    assert batch({"a": Log(80, 3), "b": Log(10, 50)}, Limits(100, None)) == {"a": 80, "b": 20}
    assert batch({"a": Log(80, 3), "b": Log(10, 50)}, Limits(100, None), "a") == {"a": 0, "b": 100}


def test_a_batch_has_one_entry_even_if_that_is_above_the_limits() -> None:
    assert batch({"a": Log(80, 3), "b": Log(10, 50)}, Limits(5, None)) == {"a": 80, "b": 0}
    assert batch({"a": Log(80, 3), "b": Log(10, 50)}, Limits(5, None), "a") == {"a": 0, "b": 10}
    assert batch({name: Log(80, 3) for name in "abc"}, Limits(None, 1)) == {"a": 80, "b": 0, "c": 0}


def test_more_logs_than_rows_still_share_the_rows() -> None:
    logs = {f"{number:02}": Log(1, 9) for number in range(20)}
    assert sum(batch(logs, Limits(7, None)).values()) == 7


def test_no_log_starves_and_no_batch_is_above_its_limit() -> None:
    logs = {"a": Log(90, 4), "b": Log(1, 400), "c": Log(30, 12), "d": Log(7, 60)}
    first, reads = None, []
    while any(log.read < log.entries for log in logs.values()):
        waiting = [name for name, log in logs.items() if log.read < log.entries]
        reads.append(batch(logs, Limits(100, None), first))
        first = in_turn(waiting, first)[0]
    assert all(0 < sum(one.values()) <= 100 for one in reads)
    for name in logs:
        gaps = [place for place, one in enumerate(reads) if one[name]]
        assert all(later - earlier <= 4 for earlier, later in zip([-1, *gaps], gaps, strict=False))


def test_another_log_is_first_in_each_batch() -> None:
    assert in_turn(["b", "a", "c"], None) == ["a", "b", "c"]
    assert in_turn(["b", "a", "c"], "a") == ["b", "c", "a"]
    assert in_turn(["b", "a", "c"], "bb") == ["c", "a", "b"]
    assert in_turn(["b", "a", "c"], "c") == ["a", "b", "c"]
    assert in_turn([], "c") == []
