"""The driver of a state machine: a bug of the state machine ends it, because somebody waits for its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol import state_machine as sm
from bk_spark.config import LedgerOptions
from bk_spark.errors import InternalError
from bk_spark.metadata.ledger_metadata import new_ledger


class Broken(sm.StateMachine):
    """Fails in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def handle(self, event: sm.Event, now_ms: int) -> None:
        assert self._method != "handle"

    def deadline_ms(self) -> int | None:
        assert self._method != "deadline_ms"
        return None


@pytest.mark.parametrize("method", ["handle", "deadline_ms"])
def test_an_assertion_of_a_state_machine_ends_it_with_an_internal_error(method: str) -> None:
    context: Any = SimpleNamespace(now_ms=lambda: 0, loop=SimpleNamespace(call_later=lambda *_: None))
    metadata = new_ledger(1, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=1)
    told: list[sm.Command] = []
    runner = Runner(context, metadata, Broken(method), told.append)
    runner.post(sm.Start())
    runner.post(sm.Tick())
    (end,) = told
    assert isinstance(end, sm.Finish)
    assert isinstance(end.error, InternalError)
