"""Plays cases against one cluster, each judged before the next is drawn."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.soak.commands.cases import Case, Ended, Outcome
from tests.soak.commands.draw import draw
from tests.soak.commands.judge import problems
from tests.soak.commands.model import State
from tests.soak.commands.processes import Programs
from tests.soak.commands.world import World, as_text, rows_of_file

MAX_ROWS = 400
"""Of one log, after which it is deleted: every case reads what changed."""


class Net:
    def __init__(self, world: World, programs: Programs, seed: int) -> None:
        self._world = world
        self._programs = programs
        self._seed = seed
        self._number = 0
        self._state = world.observe()

    def play(self) -> Outcome:
        """One case."""
        self._number += 1
        chance = random.Random(f"{self._seed}-{self._number}")
        self._supply(chance)
        folder = self._world.folder / f"case-{self._number}"
        case = draw(chance, self._world, self._state, folder)
        before = self._state
        ended = self._programs.run(case)
        self._note_half_deleted(case, ended)
        self._state = after = self._world.observe()
        found = [*problems(case, before, ended, after), *self._finished_deletions(), *self._written(case, before, ended)]
        if not found:
            shutil.rmtree(folder)
        return Outcome(case, before, ended, after, tuple(found))

    def _note_half_deleted(self, case: Case, ended: tuple[Ended, ...]) -> None:
        if case.words[:2] != ("log", "delete"):
            return
        if any(one.was_told and one.code != 0 for one in ended):
            self._world.half_deleted.add(case.words[2])
        elif any(one.code == 0 for one in ended):
            self._world.half_deleted.discard(case.words[2])

    def _supply(self, chance: random.Random) -> None:
        """What commands are to find."""
        state = self._state
        if sum(one[0] == "open" for one in state.ledgers.values()) < 1:
            self._world.make_ledger(3, is_closed=False)
        if len(state.ledgers) < 3:
            self._world.make_ledger(3, is_closed=True)
        entries = f"{self._world.prefix}entries"
        if entries not in state.logs and chance.random() < 0.05:
            self._world.make_entries_log(entries)
        for name, log in state.logs.items():
            if len(log.rows) > MAX_ROWS:
                self._world.client.open_log(name).delete()
        self._state = self._world.observe()

    def _finished_deletions(self) -> Iterator[str]:
        """A deletion that was cut off is finished by the same command."""
        for name in self._world.unfinished:
            [again] = self._programs.run(Case(("log", "delete", name)))
            if again.code != 0:
                yield f"a second 'log delete {name}' ended with {again.code}: {again.err}"
        if self._world.unfinished:
            self._state = self._world.observe()

    def _written(self, case: Case, before: State, ended: tuple[Ended, ...]) -> Iterator[str]:
        """The file of ``log read --output`` is whole, or what it was."""
        if case.output is None:
            return
        path, log = Path(case.output), before.logs[case.about]
        if (path.read_bytes() if path.exists() else None) == case.held:
            if any(one.code == 0 for one in ended):
                yield "it succeeded and wrote nothing"
            return
        form = path.suffix[1:]
        wanted = [tuple(as_text(value) for _, value in row) for row in log.rows]
        try:
            found = rows_of_file(path, form)
        except Exception as problem:  # whatever reads it: it is not whole
            yield f"it left a file that nobody can read: {problem}"
            return
        if found != wanted:
            yield f"it left a file with {len(found)} rows of {len(wanted)}, or others"


@contextmanager
def net(cluster: LocalCluster, folder: Path, seed: int, bug: str | None = None, *, is_shared: bool = False) -> Iterator[Net]:
    with BookKeeper(cluster.metadata_uri) as client, Programs(cluster.metadata_uri, folder, bug) as programs:
        world = World(cluster, client, folder, f"net-{uuid.uuid4().hex[:8]}-", is_shared=is_shared)
        yield Net(world, programs, seed)


def shown(outcome: Outcome) -> str:
    """A finding, for a person."""
    case = outcome.case
    lines = [f"bk-spark {' '.join(case.words)}", f"  {case.copies} at once, signal {case.signal} after {case.after_s:.3f} s"]
    lines += [f"  ended with {one.code} in {one.seconds:.1f} s: {one.err.strip()[:2000]}" for one in outcome.ended]
    return "\n".join([*lines, *(f"  PROBLEM {problem[:3000]}" for problem in outcome.problems)])
