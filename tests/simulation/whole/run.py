"""Whole runs: a schedule of virtual time whose clients are the shipped programs, down to where they meet sockets."""

from __future__ import annotations

from tests.simulation.engines.choices import Choices
from tests.simulation.engines.engine import Outcome, Run, judged, play
from tests.simulation.engines.schedule import REPLICATED_PERCENT, RESTORED_PERCENT, UNJOURNALED_PERCENT, Percents, draw_schedule
from tests.simulation.whole.driver import ShippedDriver, installed
from tests.specification.actions import Action

PERCENTS = Percents(REPLICATED_PERCENT, RESTORED_PERCENT, UNJOURNALED_PERCENT, apache=0)
"""Apache's wire is simulated above the messages that travel here."""


class _WholeRun(Run):
    def play(self) -> None:
        super().play()
        self.world.driver.close(self.world)


def run_whole(choices: Choices, *, is_traced: bool = False) -> Outcome:
    """Draw a schedule and play it. As ``engine.run_choices``."""
    actions: list[Action] = []
    driver = ShippedDriver(choices.pick((1, 2, 3), "racks"))
    schedule = draw_schedule(choices, PERCENTS)
    with installed(choices):
        outcome = play(_WholeRun(schedule, choices, is_traced=is_traced, tell=actions.append, driver=driver))
        outcome.tape, done = list(outcome.tape), list(actions)  # what comes of the end below is of no run
        driver.end()
    return judged(outcome, done) if outcome.violation is None else outcome
