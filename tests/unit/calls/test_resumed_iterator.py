"""An iterator that goes on after an interrupt or an error, and one that ends."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from bk_spark.calls.resumed_iterator import ResumedIterator


class Numbers:
    """From 0 to 9; raises once before each number of ``fails``, and gives no item for those of ``absent``."""

    def __init__(self, fails: set[int], absent: frozenset[int] = frozenset()) -> None:
        self.fails = fails
        self.absent = absent
        self.begun: list[int] = []

    def begin(self, place: int) -> Generator[tuple[int | None, int], None, None]:
        self.begun.append(place)
        for number in range(place, 10):
            if number in self.fails:
                self.fails.remove(number)
                raise KeyboardInterrupt
            yield None if number in self.absent else number, number + 1


def test_after_an_interrupt_it_goes_on_behind_the_last_item_that_it_returned() -> None:
    numbers = Numbers({0, 4, 9})
    iterator = ResumedIterator(numbers.begin, 0)
    given = []
    while True:
        try:
            given.append(next(iterator))
        except KeyboardInterrupt:
            continue
        except StopIteration:
            break
    assert given == list(range(10))
    assert numbers.begun == [0, 0, 4, 9]


def test_a_place_moves_also_where_there_is_no_item() -> None:
    iterator = ResumedIterator(Numbers(set(), frozenset({0, 1, 9})).begin, 0)
    assert next(iterator) == 2
    assert iterator.place == 3
    assert list(iterator) == [3, 4, 5, 6, 7, 8]
    assert iterator.place == 10


def test_one_that_was_closed_gives_nothing_more_also_after_an_interrupt() -> None:
    iterator = ResumedIterator(Numbers({3}).begin, 3)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    iterator.close()
    assert list(iterator) == []
