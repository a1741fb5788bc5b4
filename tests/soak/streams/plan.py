"""What is killed, and at which moment, drawn from a seed alone.

The seed fixes the plan, not the run: a moment is a change that the harness sees from outside, and the victim lives some
milliseconds more. What a kill of a driver really met is read off its checkpoint afterwards (``run.py``).

The fault model. Killed with SIGKILL: a driver (JVM and Python at once, its Python workers are left to find out), an executor's
JVM, a Python worker, the driver's process of the streaming source, one bookie at a time, the tailer. Disks and ZooKeeper stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

DRIVER, EXECUTOR, WORKER, READER = "driver", "executor", "Python worker", "stream reader"
BOOKIE, TAILER = "bookie", "tailer"

WEIGHTS = {DRIVER: 5, EXECUTOR: 4, BOOKIE: 4, TAILER: 3, WORKER: 2, READER: 1}

PLANNED, WRITING, SUNK, NOTED, ANY = "batch planned", "batch being written", "sink committed", "commit noted", "any"
MOMENTS = (PLANNED, WRITING, SUNK, NOTED)
"""In the order of a batch: its offsets are written down; tasks write; the log has it; Spark has noted that.

A driver that dies after SUNK and before NOTED, some 50 ms, brings the whole batch again."""

MOMENT_WEIGHTS = (2, 3, 5, 1)

MAX_WRITING_S = 0.15
"""How long after the plan a batch is written, about."""


@dataclass(frozen=True, slots=True)
class Kill:
    victim: str
    query: int
    """Whose moment is waited for: 0 writes the source into A, 1 copies A into B."""
    moment: str
    delay_s: float
    """From the moment to the signal."""


def draw(seed: int, kills: int, victims: Sequence[str]) -> tuple[Kill, ...]:
    """Each kind of victim at least once if there are kills enough, in an order that the seed gives."""
    chosen = random.Random(seed)
    drawn = list(victims[:kills])
    drawn += chosen.choices(victims, [WEIGHTS[victim] for victim in victims], k=kills - len(drawn))
    chosen.shuffle(drawn)
    return tuple(_draw_moment(chosen, victim) for victim in drawn)


def _draw_moment(chosen: random.Random, victim: str) -> Kill:
    if victim == TAILER:
        return Kill(victim, chosen.randrange(2), ANY, round(chosen.uniform(0.0, 1.0), 3))
    moment = chosen.choices(MOMENTS, MOMENT_WEIGHTS)[0]
    delay_s = round(chosen.uniform(0.0, MAX_WRITING_S), 3) if moment == WRITING else 0.0
    return Kill(victim, chosen.randrange(2), moment, delay_s)
