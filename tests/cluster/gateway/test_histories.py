"""Random calls by several identities through two gateways, beside lists of rows (tests/soak/callers), and deliberate bugs."""

from __future__ import annotations

import pytest

from tests.soak.callers.__main__ import found_by
from tests.soak.callers.bugs import BUGS, planted
from tests.soak.callers.history import History

HISTORIES = 4


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_two_gateways_answer_every_caller_as_lists_of_rows_do(seed: int) -> None:
    History(seed).run()


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert found_by(range(40)) is not None
