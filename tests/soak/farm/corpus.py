"""The tapes that reached something first, which later runs begin like.

``corpus.jsonl`` in the farm's directory has a tape a line. A tape means another run once the simulator has changed, so a farm
plays those that it finds there anew before it begins.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.farm.states import State

FILE = "corpus.jsonl"

MAX_TAPES = 2_000
"""Of an engine: some 10 MB. When it is full, the tape whose states were met most often since then goes."""

SHORTEST = 0.3
"""A run begins like at least this part of the tape, or nearly all would begin with nothing."""


@dataclass(slots=True)
class Corpus:
    """Of one engine."""

    met: Counter[State] = field(default_factory=Counter)
    """Each state, and how many runs met it."""
    unplayed: list[list[int]] = field(default_factory=list)
    """Tapes of an earlier farm that were not played anew, or that fail today."""
    kept: list[tuple[list[int], frozenset[State]]] = field(default_factory=list)
    """Tapes, each with the states that it was the first to meet."""

    def learn(self, learnt: Iterable[tuple[list[int], frozenset[State]]], met: Mapping[State, int]) -> int:
        """Take in runs: tapes with what each reached first, and how often all of them met each state.

        Gives back how many states are new; their tapes are kept.
        """
        before, found = self.met.keys() & met.keys(), 0
        self.met.update(met)
        for tape, states in learnt:
            new = states - before
            found += len(new)
            if new:
                self.kept.append((tape, new))
                if len(self.kept) > MAX_TAPES:
                    self.kept.remove(min(self.kept, key=self._rarity))
        return found

    def begins(self, count: int, chosen: random.Random) -> list[list[int]]:
        """Beginnings of tapes, those with rare states more often."""
        weights = [self._rarity(one) for one in self.kept]
        tapes = [tape for tape, _ in chosen.choices(self.kept, weights, k=count)]
        return [tape[: int(len(tape) * chosen.uniform(SHORTEST, 1))] for tape in tapes]

    def _rarity(self, one: tuple[list[int], frozenset[State]]) -> float:
        return sum(1 / self.met[state] for state in one[1])


def saved_tapes(directory: Path) -> dict[str, list[list[int]]]:
    """Those that a farm left behind, by engine."""
    found: dict[str, list[list[int]]] = {}
    file = directory / FILE
    for line in file.read_text().splitlines() if file.exists() else ():
        kept = json.loads(line)
        found.setdefault(kept["engine"], []).append(kept["tape"])
    return found


def save(corpora: Mapping[str, Corpus], directory: Path) -> None:
    new = directory / f"{FILE}.new"
    with new.open("w") as file:
        for engine, corpus in corpora.items():
            for tape in (*(tape for tape, _ in corpus.kept), *corpus.unplayed):
                file.write(json.dumps({"engine": engine, "tape": tape}) + "\n")
    new.replace(directory / FILE)
