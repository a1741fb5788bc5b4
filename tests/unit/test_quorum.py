"""Write sets, patterns and coverage."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.quorum import DENSE, IdPattern, check_quorums, is_covered, pattern_of_slot, write_set

SHAPES = [(e, w) for e in range(1, 7) for w in range(1, e + 1)]


def test_write_sets_are_those_of_the_protocol_text() -> None:
    """Ref: the BookKeeper protocol, "Write quorums": E=4, Qw=3."""
    assert [write_set(i, 4, 3) for i in range(6)] == [(0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 2, 3)]


@pytest.mark.parametrize(("e", "w"), SHAPES)
def test_a_slot_holds_exactly_the_entries_whose_write_set_names_it(e: int, w: int) -> None:
    for slot in range(e):
        pattern = pattern_of_slot(e, w, slot)
        held = [i for i in range(40) if slot in write_set(i, e, w)]
        assert pattern.ids(0, 39).tolist() == held
        assert [i for i in range(40) if pattern.holds(i)] == held
        assert np.flatnonzero(pattern.mask(np.arange(40, dtype=np.int64))).tolist() == held
        assert pattern.count(3, 21) == len([i for i in held if 3 <= i <= 21])


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 0, 0), (0, 0, 0), (3, 3, 0), (65, 3, 2)])
def test_sizes_that_break_the_order_of_quorums_are_refused_with_the_option_named(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=r"ensembleSize|writeQuorum|ackQuorum"):
        check_quorums(*sizes)


def test_a_slot_outside_of_the_ensemble_is_refused() -> None:
    with pytest.raises(ConfigError, match="slot"):
        IdPattern(3, 2, 3)


@given(st.sampled_from(SHAPES), st.data())
def test_coverage_means_that_no_ack_quorum_is_left_outside(shape: tuple[int, int], data: st.DataObject) -> None:
    """The definition by sets (BP-46) against the one by counts."""
    e, w = shape
    a = data.draw(st.integers(1, w))
    known = data.draw(st.frozensets(st.integers(0, e - 1)))
    unknown_ack_quorum = any(not known.intersection(quorum) for i in range(e) for quorum in combinations(write_set(i, e, w), a))
    assert is_covered(known, e, w, a) is not unknown_ack_quorum


def test_an_unstriped_ensemble_has_the_dense_pattern() -> None:
    assert pattern_of_slot(3, 3, 2) == DENSE
