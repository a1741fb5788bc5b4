"""How far a start has come: in the log, for operators, and where it may be ended."""

from __future__ import annotations

import logging

import pytest

from bk_spark.bookie.progress import PROGRESS_S, WORK_S, Interval, Progress, share

MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bk_spark.bookie.progress"]


def test_a_step_is_told_when_it_begins_and_then_each_few_seconds_with_how_much_of_how_much(caplog) -> None:
    clock = Clock()
    progress = Progress(clock)
    with caplog.at_level(logging.INFO):
        progress.begin("replays its logs", 200 * MIB)
        for done in range(200):
            clock.now_s += PROGRESS_S / 40
            progress.advance(done * MIB)
    assert lines(caplog) == [
        "replays its logs, 200.0 MiB",
        "replays its logs: 39.0 MiB of 200.0 MiB (19 %)",
        "replays its logs: 79.0 MiB of 200.0 MiB (39 %)",
        "replays its logs: 119.0 MiB of 200.0 MiB (59 %)",
        "replays its logs: 159.0 MiB of 200.0 MiB (79 %)",
        "replays its logs: 199.0 MiB of 200.0 MiB (99 %)",
    ]
    assert progress.text == lines(caplog)[-1]


def test_a_step_whose_amount_is_not_known_is_told_by_its_name(caplog) -> None:
    progress = Progress(Clock())
    with caplog.at_level(logging.INFO):
        progress.begin("opens its index")
    assert (lines(caplog), progress.text) == (["opens its index"], "opens its index")


def test_the_work_can_be_ended_at_every_report() -> None:
    asked = False

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    progress = Progress(Clock(), check)
    progress.begin("replays its logs", MIB)
    progress.advance(1)
    asked = True
    with pytest.raises(KeyboardInterrupt):
        progress.advance(2)
    with pytest.raises(KeyboardInterrupt):
        progress.begin("seals and syncs its logs")


def test_an_opening_tells_its_steps_and_how_far_the_replay_and_the_writing_have_come(harness, caplog, monkeypatch) -> None:
    monkeypatch.setattr("bk_spark.bookie.progress.PROGRESS_S", 0.0)
    harness.start()
    for ledger_id in range(5):
        harness.add(ledger_id, 0, 9, size=100)
        harness.add(ledger_id, 10, 19, size=5000)
    harness.kill()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        harness.start()
    told = lines(caplog)
    assert [line for line in told if " of " not in line] == [
        "opens its index",
        "replays its logs, 0.3 MiB",
        "seals and syncs its logs",
        "writes what it replayed into its entry logs and index, 0.0 MiB",
    ]
    assert sum(line.startswith("replays its logs: ") for line in told) == 10
    assert sum(line.startswith("writes what it replayed into its entry logs and index: ") for line in told) == 5


def test_the_figures_of_a_step_move_with_each_report() -> None:
    progress = Progress(Clock())
    progress.begin("replays its logs", 200 * MIB)
    progress.advance(3 * MIB)
    assert (progress.done_bytes, progress.total_bytes) == (3 * MIB, 200 * MIB)
    progress.begin("opens its index")
    assert (progress.done_bytes, progress.total_bytes) == (0, 0)


def test_a_line_about_long_work_is_due_once_a_minute_from_its_beginning_on() -> None:
    clock = Clock()
    line = Interval(clock)
    assert not line.is_due()
    clock.now_s += WORK_S
    assert [line.is_due(), line.is_due()] == [True, False]
    clock.now_s += WORK_S - 1
    line.begin()
    clock.now_s += 1
    assert not line.is_due()


def test_a_share_is_told_of_a_known_total_and_never_above_all_of_it() -> None:
    assert [share(19, 100), share(120, 100), share(5, 0)] == [" (19 %)", " (100 %)", ""]
