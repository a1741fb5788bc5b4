"""Which lanes are read together."""

from __future__ import annotations

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.log.rows.latest.shares import shares


def stretch(ledger_id: int, length: int = 10) -> Stretch:
    return Stretch(ledger_id, 0, 9, length)


LANES = {1: 0, 2: 1, 3: 2, 4: 0, 5: 1, 6: 2}


def ids(found: list[tuple[Stretch, ...]]) -> list[list[int]]:
    return [[one.ledger_id for one in share] for share in found]


def test_a_lane_is_in_one_share_in_its_order() -> None:
    assert ids(shares([stretch(one) for one in LANES], LANES, 1)) == [[1, 4], [2, 5], [3, 6]]


def test_small_lanes_are_read_together_in_the_order_of_the_log() -> None:
    assert ids(shares([stretch(one) for one in LANES], LANES, 1000)) == [[1, 2, 3, 4, 5, 6]]
    assert ids(shares([stretch(one) for one in LANES], LANES, 40)) == [[1, 2, 4, 5], [3, 6]]


def test_a_large_lane_is_alone() -> None:
    found = shares([stretch(1), stretch(2, 1000), stretch(3), stretch(4)], LANES, 40)
    assert ids(found) == [[1, 4], [2], [3]]


def test_a_ledger_whose_lane_is_not_known_may_have_rows_of_all() -> None:
    assert ids(shares([stretch(1), stretch(2), stretch(9)], LANES, 1)) == [[1, 2, 9]]


def test_no_stretch_is_no_share() -> None:
    assert shares([], LANES, 1) == []
