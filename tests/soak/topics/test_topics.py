"""Topics of a real broker on our bookies, in the short form of the run. ``make topics`` writes and reads more."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed.measure import SkippedError
from tests.soak.topics.run import Outcome, Size, play

SHORT = Size(messages=20_000, reads=60, window_s=2.0, window_rounds=1)
WITH_KILLS = Size(messages=20_000, reads=60, window_s=0.0, window_rounds=0, kills=2)


def played(directory: Path, size: Size) -> Outcome:
    try:
        outcome = play(directory, size, print)
    except SkippedError as reason:
        pytest.skip(f"a Pulsar broker is not to be had: {reason}")
    assert outcome.holds, f"{outcome.describe()}\nall logs are in {directory}"
    return outcome


@pytest.mark.timeout(1200)
def test_we_read_what_pulsars_own_client_gets_and_no_ledger_is_fenced(tmp_path: Path) -> None:
    outcome = played(tmp_path, SHORT)
    assert outcome.compared >= outcome.received > SHORT.messages / 2
    assert outcome.reads.while_written
    assert outcome.hands.closed_ledgers > outcome.hands.open_ledgers
    assert outcome.streamed >= outcome.received


@pytest.mark.timeout(1200)
def test_we_read_what_pulsars_own_client_gets_from_a_broker_that_dies_and_comes_back(tmp_path: Path) -> None:
    outcome = played(tmp_path, WITH_KILLS)
    assert outcome.compared >= outcome.received
    assert outcome.stream_starts > 1
