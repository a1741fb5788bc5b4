"""What each engine plays against a mutant, as single runs: a script, a small scope or a schedule.

A run imports the code under test when it begins, so that a process may load a mutant first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.checkout import ROOT

Run = Callable[[], object]
"""Returns the first violation, None if there is none; may raise it, too."""

SCHEDULES = {"bag": 400, "virtual time": 200, "re-replication": 100}
STATES = 20_000
"""Of each small scope; the shipped code has no more."""

ENGINES = ("scripts", "exhaustive", *SCHEDULES)


def runs(engine: str) -> list[Run]:
    """In the order in which they are played, the same in each process."""
    players: dict[str, Callable[[], list[Run]]] = {
        "scripts": _scripts,
        "exhaustive": lambda: [partial(_scope, number) for number in range(len(SCOPES))],
        "bag": lambda: [partial(_bag, seed) for seed in range(SCHEDULES["bag"])],
        "virtual time": lambda: [partial(_virtual_time, seed, 0) for seed in range(SCHEDULES["virtual time"])],
        "re-replication": lambda: [partial(_virtual_time, seed, 100) for seed in range(SCHEDULES["re-replication"])],
    }
    return players[engine]()


def _scripts() -> list[Run]:
    return [partial(_script, path) for path in sorted((ROOT / "tests" / "scenarios").glob("*.txt"))]


def _script(path: Path) -> None:
    from tests.simulation.scripts.script_engine import play

    play(path.read_text())


SCOPES = (((2, 2, 1), False, 0), ((2, 2, 1), True, 0), ((2, 2, 2), False, 0), ((2, 2, 2), False, 2))
"""(ensemble, write and ack quorum), whether the writer closes, spare bookies."""


def _scope(number: int) -> object:
    from tests.simulation.engines.exhaustive import Scope, search

    quorums, closes, spares = SCOPES[number]
    return search(Scope(quorums, closes=closes, spares=spares), STATES).violation


def _bag(seed: int) -> object:
    from tests.simulation.engines.bag import run_bag
    from tests.simulation.engines.choices import SeededChoices

    return run_bag(SeededChoices(seed)).violation


def _virtual_time(seed: int, replicated_percent: int) -> object:
    from tests.simulation.engines.choices import SeededChoices
    from tests.simulation.engines.engine import run_choices

    return run_choices(SeededChoices(seed), replicated_percent=replicated_percent).violation
