"""Pulsar on our bookies, in the short form of the run. ``make pulsar`` sends more, and breaks more."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed.measure import SkippedError
from tests.soak.pulsar.__main__ import Form
from tests.soak.pulsar.plan import BOOKIE_LOST, BROKER_KILLED

SHORT = Form(messages=6_000, minutes=1.0, faults=2, seed=1)


@pytest.mark.timeout(1200)
def test_every_acknowledged_message_is_read_though_a_bookie_is_lost_and_a_broker_killed(tmp_path: Path) -> None:
    try:
        outcome = SHORT.play(tmp_path, print)
    except SkippedError as reason:
        pytest.skip(f"a Pulsar broker is not to be had: {reason}")
    assert not outcome.violations, f"{outcome.describe()}\nall logs are in {tmp_path}"
    assert outcome.faults == {BOOKIE_LOST: 1, BROKER_KILLED: 1}
    assert outcome.acknowledged == SHORT.messages
    assert outcome.entries_read
    assert outcome.bytes_after < outcome.bytes_before
