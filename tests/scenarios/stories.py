"""The protocol's main stories, each as a schedule without chance: the shipped code, latencies of 1 ms, everything in order.

Their traces are texts in ``traces``. ``python -m tests.scenarios.stories`` writes them anew; read the difference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.simulation.engines.choices import TapeChoices
from tests.simulation.engines.engine import Run, play
from tests.simulation.engines.schedule import Fault, ReaderPlan, RecovererPlan, Schedule, WriterPlan

DIRECTORY = Path(__file__).parent / "traces"
LONG_MS = 60_000

STORIES = {
    "write_path": Schedule((3, 3, 2), 0, WriterPlan(((3,), (3, 3), (3,)), pause_ms=10), readers=(ReaderPlan(15, rounds=1),)),
    "striped_writes": Schedule((3, 2, 2), 0, WriterPlan(((3, 3, 3, 3), (3,)), window=2), readers=(ReaderPlan(10, rounds=1),)),
    "ensemble_change": Schedule(
        (3, 3, 2), 1, WriterPlan(((3,), (3,), (3,), (3,)), window=2, pause_ms=10), faults=(Fault(12, "kill", "b2", LONG_MS),)
    ),
    "two_bookies_fail_at_once": Schedule(
        (3, 3, 2),
        2,
        WriterPlan(((3,), (3,), (3,)), window=3, pause_ms=5),
        faults=(Fault(6, "kill", "b1", LONG_MS), Fault(6, "kill", "b3", LONG_MS)),
    ),
    "recovery_fences_a_live_writer": Schedule(
        (3, 3, 2), 0, WriterPlan(((3,), (3,), (3,)), pause_ms=10), recoverers=(RecovererPlan(15),)
    ),
    "recovery_after_a_killed_writer": Schedule(
        (3, 3, 2),
        1,
        WriterPlan(((3,), (3, 3)), window=2),
        recoverers=(RecovererPlan(50),),
        faults=(Fault(1, "one-way split", "b3", LONG_MS), Fault(2, "kill client", "writer"), Fault(40, "kill", "b2", LONG_MS)),
    ),
    "concurrent_recoverers": Schedule(
        (2, 2, 2),
        0,
        WriterPlan(((3,), (3,)), window=2, closes=False),
        recoverers=(RecovererPlan(10), RecovererPlan(10)),
        faults=(Fault(5, "kill client", "writer"),),
    ),
    "close": Schedule((2, 2, 2), 0, WriterPlan(((3,), (3,), (3,)), window=3, pause_ms=1, closes_early=True)),
    "close_meets_recovery": Schedule(
        (2, 2, 2), 0, WriterPlan(((3,), (3,)), window=2, pause_ms=2), recoverers=(RecovererPlan(2),)
    ),
    "zombie_writer_goes_on_after_the_close": Schedule(
        (3, 3, 2),
        0,
        WriterPlan(((3,), (3,), (3,)), pause_ms=10),
        recoverers=(RecovererPlan(20),),
        faults=(Fault(15, "stop writer", "writer", LONG_MS),),
    ),
    "bookie_that_lost_its_disk_denies_nothing": Schedule(
        (3, 3, 2),
        0,
        WriterPlan(((3,), (3,)), closes=False),
        recoverers=(RecovererPlan(50),),
        faults=(Fault(20, "lose data", "b1"), Fault(25, "kill client", "writer")),
    ),
}


def told(name: str) -> str:
    """The trace of a story, up to the final audit."""
    outcome = play(Run(replace(STORIES[name], chaos_ms=1_000), TapeChoices([]), is_traced=True))
    assert outcome.violation is None, outcome.violation
    lines = outcome.trace
    end = next(number for number, line in enumerate(lines) if line.endswith("the final audit"))
    return "\n".join(lines[:end]) + "\n"


def path_of(name: str) -> Path:
    return DIRECTORY / f"{name}.txt"


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for each in STORIES:
        path_of(each).write_text(told(each))
