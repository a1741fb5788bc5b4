"""An interrupt at any step of a public call leaves everything as it was: a sample of ``tests.soak.interrupts``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.soak.interrupts import clients, coroutines, judge
from tests.soak.interrupts.bugs import BUGS
from tests.soak.interrupts.case import Case
from tests.soak.interrupts.judge import FoundError
from tests.soak.interrupts.net import CASES, Net

SAMPLED = 8
CLIENTS_SAMPLED = 3
"""A client that is opened takes long."""


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    net = Net()
    yield net
    net.close()


@pytest.fixture
def own_net() -> Iterator[Net]:
    """What one bug leaves behind is there before the next is planted."""
    net = Net()
    yield net
    net.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_after_an_interrupt_at_any_step_of_a_call_the_next_call_works_and_nothing_is_left(net: Net, case: Case) -> None:
    steps = net.steps(case)
    sampled = CLIENTS_SAMPLED if case in clients.CASES else SAMPLED
    for step in range(1, steps + 1, max(1, steps // sampled)):
        net.interrupt(case, step)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_so_it_is_after_a_signal_at_any_moment(net: Net, case: Case) -> None:
    net.signal(case)


@pytest.mark.parametrize("case", coroutines.CASES, ids=lambda case: case.name)
def test_coroutines_may_be_cancelled_at_any_await(net: Net, case: coroutines.AsyncCase) -> None:
    for _ in range(2):
        net.cancel(case)


@pytest.mark.parametrize(
    ("bug", "interrupted"),
    [
        ("room-kept", "append_async without room"),
        ("lock-held", "append to a log"),
        ("told-later", "append of a row"),
        ("close-in-caller", "close of a log"),
        ("reader-moves", "read of a ledger"),
    ],
)
def test_a_deliberate_bug_is_found(own_net: Net, monkeypatch: pytest.MonkeyPatch, bug: str, interrupted: str) -> None:
    case = next(one for one in CASES if one.name == interrupted)
    BUGS[bug].plant(monkeypatch.setattr)
    monkeypatch.setattr(judge, "DEADLINE_S", 0.5)
    steps = own_net.steps(replace(case, name=f"{interrupted}, with a bug"))
    with pytest.raises(FoundError):
        _interrupt_everywhere(own_net, case, steps)


def _interrupt_everywhere(net: Net, case: Case, steps: int) -> None:
    for step in range(steps, 0, -max(1, steps // 60)):
        net.interrupt(case, step)
