"""A bookie is killed for good, with AutoRecovery at work. ``make lost-bookie`` does the same with 10,000 ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.chaos.lost_bookie import Plan, describe, run


@pytest.mark.timeout(240)
def test_every_fragment_of_a_lost_bookie_returns_to_its_write_quorum_while_writers_and_readers_go_on(tmp_path: Path) -> None:
    """Situations 51 and 76; protocol rules 53 to 57."""
    said: list[str] = []
    outcome = run(Plan(ledgers=60, entries=5, deadline_s=120), tmp_path / "cluster", said.append)
    assert outcome.problems == (), "\n".join([*said, describe(outcome)])
    assert outcome.ledgers >= 60
