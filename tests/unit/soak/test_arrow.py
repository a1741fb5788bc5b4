"""Arrow data of all kinds through the gate, the codec and the reader: a short round, and deliberate bugs (tests/soak/arrow)."""

from __future__ import annotations

import pytest

from tests.soak.arrow.bugs import BUGS, found_after, run_case


@pytest.mark.parametrize("first", [0, 25, 50])
def test_drawn_data_is_read_back_equal_or_refused_by_name(first: int) -> None:
    for seed in range(first, first + 25):
        run_case(seed)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.within <= 20], ids=lambda bug: bug.name)
def test_a_deliberate_bug_is_found(bug) -> None:
    assert found_after(bug, bug.within) is not None
