"""One run of a duel for a log: chaos → what is under way lands → everything is closed and swept → the audit.

Several processes, each with shipped code on a session of its own, write, lead, compact, truncate and read one log, while
connections break, servers lag, processes die and clocks are wrong. Then nothing fails any more: open ledgers are recovered, a
reader reads everything, the sweep takes what nobody lists, and the history (log_history.py) is held against the log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol

from bk_spark.log.cleanup.orphans import Orphans
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.stored.values import CommitKind
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Violation
from tests.simulation.logs.audit import require
from tests.simulation.logs.clients import batch_writer, compactor, operator, stream_query, truncator
from tests.simulation.logs.leaders import in_the_baton_s_hands, leader
from tests.simulation.logs.ledgers import ZNODES
from tests.simulation.logs.readers import Stream, batch_reader
from tests.simulation.logs.tierers import check_tier, engine, give_lake, restorer, set_back, tier_all, tierer, vacuum_tier
from tests.simulation.logs.world import DAY_MS, LOG, DuelWorld, LogWeather, Machine, draw_weather


@dataclass(slots=True)
class DuelOutcome:
    """What became of a run. ``marks`` count what is worth to have happened."""

    tape: list[int]
    turns: int
    faults: Counter[str]
    marks: Counter[str]
    violation: Violation | None = None
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    """Two runs with the same are the same run."""


class Duel:
    """``tiers``: the log has a tier, with tierers and others at its table among the processes."""

    def __init__(self, choices: Choices, *, is_traced: bool = False, tiers: bool = False) -> None:
        self.world = DuelWorld(choices, is_traced=is_traced)
        self._streams = [Stream(f"stream{n}") for n in range(2)]
        if tiers:
            give_lake(self.world)

    def play(self) -> None:
        """Raises Violation."""
        world = self.world
        cast = _cast(world.choices) if world.lake is None else _tiers(world.choices)
        for name, body in cast:
            Machine(name, world, body)
        for stream in self._streams:
            Machine(stream.name, world, stream.body(8))
        world.weather = draw_weather(world.choices)
        if world.lake is not None:
            cut_uploads = world.choices.pick((0, 3, 10), "cut uploads")
            late_commits = world.choices.pick((0, 5, 20), "late commits")
            world.weather = replace(world.weather, cut_uploads=cut_uploads, late_commits=late_commits)
        world.baton.run()
        world.weather = LogWeather()
        world.note("-", "faults end")
        self._alone("closer", self._close)
        if world.lake is not None:
            check_tier(world)
        world.history.check(world.audit)
        world.history.check_streams(world.audit, [one.name for one in self._streams if not one.is_lost])
        self._alone("sweeper", self._sweep)

    def _alone(self, name: str, body: Callable[[Machine], None]) -> None:
        self.world.baton = self.world.new_baton()
        Machine(name, self.world, body)
        self.world.baton.run()

    def _close(self, machine: Machine) -> None:
        """Nothing fails here, whatever was left behind."""
        machine.log.recover()
        if self.world.lake is not None:
            tier_all(machine)
            if self.world.lake.may_be_set_back:
                set_back(machine)
                tier_all(machine)
        for stream in self._streams:
            if not stream.is_lost:
                stream.body(1)(machine)

    def _sweep(self, machine: Machine) -> None:
        """Twice, as the directories of aborted jobs go with the second sweep; and once all versions but the last are old."""
        for _ in range(3):
            self.world.now_ms += 9 * DAY_MS
            list(Orphans(machine.logs).sweep())
        LogVacuum(machine.logs).run(LOG)
        left = {one for one in self.world.audit.created if ZNODES.ledger(one) in self.world.tree.newest}
        orphans = sorted(left - set(self.world.audit.listings[-1]))
        require(not orphans, "L7", f"ledgers {orphans} are left after the sweep, and nobody lists them")
        if self.world.lake is not None:
            vacuum_tier(machine)


Cast = list[tuple[str, Callable[[Machine], None]]]


def _cast(choices: Choices) -> Cast:
    """Who takes part: in one run of three leaders alone, so that they meet each other more often."""
    readers: Cast = [("reader", batch_reader(8))]
    if choices.choose(3, "leaders alone") == 2:
        return readers + _leaders(choices, 2, 12)
    return readers + _leaders(choices, choices.choose(4, "leaders"), choices.between(2, 9, "appends")) + _others(choices)


def _leaders(choices: Choices, count: int, appends: int) -> Cast:
    return [(f"leader{n}", leader(choices.between(1, 4, "leaderships"), appends)) for n in range(count)]


def _others(choices: Choices) -> Cast:
    kinds = choices.pick(((CommitKind.APPEND,), (CommitKind.APPEND, CommitKind.APPEND, CommitKind.OVERWRITE)), "kinds")
    batches = range(choices.choose(3, "batches"))
    cast: Cast = [(f"batch{n}", batch_writer(choices.between(1, 3, "batches"), kinds)) for n in batches]
    if choices.choose(2, "queries"):
        cast += [("query-a", stream_query("q", 3)), ("query-b", stream_query("q", 3))]
    if choices.choose(2, "compactor"):
        cast.append(("compactor", compactor(3)))
    if choices.choose(3, "truncator") == 2:
        cast.append(("truncator", truncator(2)))
    if choices.choose(2, "operator"):
        cast.append(("operator", operator(4)))
    return cast


def _tiers(choices: Choices) -> Cast:
    """Catalogs are set back only where nobody deletes files of others: what is gone cannot be had again."""
    engines: Cast = [("engine", engine(12))]
    restoring: Cast = [("restorer", restorer(2)), ("engine", engine(12, deletes=False))]
    others = choices.pick(([], engines, engines, restoring[:1], restoring), "at the table")
    cast: Cast = [*_others(choices), *_leaders(choices, choices.choose(2, "leaders"), 6), *others]
    cast += [("truncator0", truncator(3))] * choices.choose(2, "truncator")
    return [("reader", batch_reader(8)), *cast, *((f"tierer{n}", tierer(6)) for n in range(choices.between(1, 2, "tierers")))]


class Playable(Protocol):
    """A run that has not begun."""

    world: DuelWorld

    def play(self) -> None:
        """Raises Violation."""


def run_duel(choices: Choices, *, is_traced: bool = False, tiers: bool = False) -> DuelOutcome:
    """Play a run to its end or to a violation; an exception out of shipped code is one, too."""
    return outcome_of(lambda: Duel(choices, is_traced=is_traced, tiers=tiers), choices)


def outcome_of(make: Callable[[], Playable], choices: Choices) -> DuelOutcome:
    """Make a run, which draws from ``choices``, and play it."""
    violation: Violation | None = None
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # simulated processes do not log
    duel = make()
    try:
        with in_the_baton_s_hands(duel.world):
            duel.play()
    except Violation as found:
        violation = found
    except Exception as problem:
        violation = Violation("L0", f"{type(problem).__name__}: {problem}")
        violation.__cause__ = problem
    finally:
        logging.disable(logged)
    world = duel.world
    if violation is not None:
        world.note("-", f"VIOLATION {violation}")
    trace = world.trace or []
    digest = sha256(repr((choices.tape, world.now_ms, world.tree.newest, trace)).encode()).hexdigest()
    return DuelOutcome(choices.tape, world.turns, world.faults, world.marks, violation, trace, digest)
