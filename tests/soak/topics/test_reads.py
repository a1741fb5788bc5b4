"""What the random reads hold against each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tests.soak.topics.reads import SEEN, Seen, missing_of, sums


def seen(*entries: int) -> Seen:
    made = np.zeros(len(entries), SEEN)
    made["entry_id"] = entries
    return made


def entries(found: Seen) -> list[int]:
    return [int(one) for one in found["entry_id"]]


def test_a_read_that_ends_early_begins_as_earlier_ones_saw_it() -> None:
    assert not len(missing_of(seen(1, 2, 3), seen(1, 2), is_cut=True, may_fill=False))
    assert not len(missing_of(seen(1, 2), seen(1, 2, 3), is_cut=True, may_fill=False))
    assert entries(missing_of(seen(1, 2, 3), seen(1, 3), is_cut=True, may_fill=False)) == [2]


def test_a_whole_read_sees_all_that_an_earlier_one_saw() -> None:
    assert not len(missing_of(seen(1, 2), seen(1, 2, 3), is_cut=False, may_fill=False))
    assert entries(missing_of(seen(1, 2, 3), seen(1, 2), is_cut=False, may_fill=False)) == [3]
    assert entries(missing_of(seen(1, 2, 3), seen(), is_cut=False, may_fill=False)) == [1, 2, 3]


def test_nothing_comes_between_messages_that_an_earlier_read_saw() -> None:
    assert entries(missing_of(seen(1, 3), seen(1, 2, 3), is_cut=False, may_fill=False)) == [3]


def test_transactions_fill_in_and_take_nothing_away() -> None:
    assert not len(missing_of(seen(1, 3), seen(1, 2, 3), is_cut=False, may_fill=True))
    assert not len(missing_of(seen(1, 3, 5), seen(1, 2, 3), is_cut=True, may_fill=True))
    assert entries(missing_of(seen(1, 3, 5), seen(1, 2, 3), is_cut=False, may_fill=True)) == [5]
    assert entries(missing_of(seen(1, 2, 3), seen(1, 3), is_cut=True, may_fill=True)) == [2]


def test_sums_tell_values_apart_with_nulls_in_any_part_of_an_array() -> None:
    values = pa.array([b"xx", b"ab", b"ba", None, b"", b"\xff" * 300], pa.binary())
    assert sums(values).tolist()[1:] == sums(values.slice(1)).tolist()
    ab, ba, null, empty, long = sums(values.slice(1)).tolist()
    assert ab != ba
    assert (null, empty, long) == (-1, 0, 255 * 300 * 301 // 2)
    assert not len(sums(values.slice(6)))
