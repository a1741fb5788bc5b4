"""Which bookies form an ensemble."""

import random

import pytest

from bk_spark.client.placement import choose_ensemble
from bk_spark.errors import NotEnoughBookiesError


def test_an_ensemble_has_distinct_available_bookies() -> None:
    choose = random.Random(1).randrange
    for _ in range(50):
        ensemble = choose_ensemble(["a", "b", "c", "d", "d"], 3, choose)
        assert len(set(ensemble)) == 3
        assert set(ensemble) <= {"a", "b", "c", "d"}


def test_over_many_choices_every_bookie_takes_part_about_equally() -> None:
    choose = random.Random(1).randrange
    chosen = [bookie for _ in range(1000) for bookie in choose_ensemble("abcde", 3, choose)]
    assert all(500 < chosen.count(bookie) < 700 for bookie in "abcde")


def test_too_few_bookies_are_an_error_with_both_numbers() -> None:
    with pytest.raises(NotEnoughBookiesError, match="needs 3 bookies and 2 can be used"):
        choose_ensemble(["a", "b", "b"], 3, lambda n: 0)
