"""Parts that are read side by side: order, bounds, errors, and the end of the threads."""

from __future__ import annotations

import random
import threading
import time

import pyarrow as pa
import pytest

from bk_spark.log.rows.side_by_side import READERS, ReadAhead, SideBySide

DEADLINE_S = 20.0


def batch(number, size=1):
    return pa.record_batch([pa.array([number] * size, pa.int64())], names=["n"])


def numbers(batches):
    return [one.column("n")[0].as_py() for one in batches]


def await_true(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def threads():
    return sum(one.name == "bk_spark-rows" for one in threading.enumerate())


def test_a_reader_goes_on_while_there_is_room_and_at_the_head_always() -> None:
    ahead = ReadAhead(3, ahead_bytes=1)
    assert [ahead.take() if ahead.may_take else "waits" for _ in range(2)] == [0, 1]
    assert ahead.may_put(1)
    assert ahead.put(1, batch(10))
    assert (ahead.may_put(1), ahead.may_take, ahead.may_put(0), ahead.can_give) == (False, False, True, False)
    assert ahead.put(0, batch(0))
    assert not ahead.may_put(0)
    assert ahead.give() == batch(0)
    ahead.end(0, None)
    assert ahead.give() is None
    assert (ahead.can_give, ahead.may_put(1)) == (True, False)
    assert ahead.give() == batch(10)
    ahead.end(1, ValueError("damaged"))
    with pytest.raises(ValueError, match="damaged"):
        ahead.give()


def test_nothing_is_added_once_the_consumer_wants_no_more() -> None:
    ahead = ReadAhead(2)
    assert ahead.take() == 0
    ahead.is_over = True
    assert (ahead.put(0, batch(0)), ahead.may_take, ahead.take()) == (False, True, None)


def test_batches_come_in_the_order_of_the_parts_whatever_part_is_read_first():
    turns = random.Random(1)
    held = threading.Event()

    def read(stretch):
        if stretch == 0:
            held.wait(DEADLINE_S)  # the others are read meanwhile
        for number in range(3):
            if turns.random() < 0.3:
                time.sleep(0)
            yield batch(10 * stretch + number)
        if stretch == READERS - 1:
            held.set()

    found = numbers(SideBySide(range(20), read).batches())
    assert found == [10 * stretch + number for stretch in range(20) for number in range(3)]
    await_true(lambda: threads() == 0)


def test_no_parts_give_no_batches():
    assert list(SideBySide([], lambda _: iter(())).batches()) == []


def test_what_is_read_ahead_is_bounded_and_the_part_that_is_waited_for_always_goes_on():
    """The bound is below one batch: only the head may go on, and each thread holds one batch."""
    made, most = [], []

    def read(stretch):
        for number in range(50):
            made.append(stretch)
            yield batch(100 * stretch + number, size=1000)

    taken = 0
    for _ in SideBySide(range(6), read, ahead_bytes=1).batches():
        taken += 1
        most.append(len(made) - taken)
    assert taken == 300
    assert max(most) <= 2 * READERS


def test_an_error_is_raised_behind_the_batches_that_stand_before_it():
    def read(stretch):
        yield batch(stretch)
        if stretch == 2:
            raise ValueError("damaged")

    batches = SideBySide(range(9), read).batches()
    assert numbers([next(batches) for _ in range(3)]) == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    await_true(lambda: threads() == 0)


def test_an_iterator_that_is_closed_early_ends_the_threads():
    def read(stretch):
        while True:
            yield batch(stretch, size=1000)

    batches = SideBySide(range(9), read, ahead_bytes=100_000).batches()
    next(batches)
    batches.close()
    await_true(lambda: threads() == 0)
