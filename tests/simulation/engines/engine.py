"""One run in virtual time: chaos → heal → a tailing reader → a fresh recovery → what is lost for good is replaced → what was
held back arrives → more is lost → the final audit.

After the chaos nothing fails any more: bookies that can start do, new ones join if there are too few, and every append has
to be resolved. Then a recoverer that has seen nothing must be able to close the ledger and read all of it. Last, what was
stopped goes on and what was held back arrives: a writer from before the close must find itself displaced.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from bk_spark.config import DigestType, LedgerOptions
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState, new_ledger
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Invariants, Violation
from tests.simulation.engines.schedule import (
    REPLICATED_PERCENT,
    RESTORED_PERCENT,
    UNJOURNALED_PERCENT,
    Percents,
    RecovererPlan,
    Schedule,
    Weather,
    draw_schedule,
)
from tests.simulation.engines.virtual_time import VirtualTimeWorld
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.client_actors import Reader, Recoverer, Tailer
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.faults import Faults
from tests.simulation.world.former_ledger import FormerClients
from tests.simulation.world.metadata_store import SimulatedMetadataStore
from tests.simulation.world.observed import Observed
from tests.simulation.world.replication_actors import LockingClient
from tests.simulation.world.replication_phases import Replication
from tests.simulation.world.self_repair import SelfRepair
from tests.simulation.world.writer_actor import Writer
from tests.specification.actions import Action
from tests.specification.judge import NotAllowedError
from tests.specification.observers import Tell
from tests.specification.specification import judge

SETTLE_MS = 1_000_000
"""How long after the chaos all that was begun must have ended: every patience is far below it."""

REGISTERED_MS = 5_000
"""How long a dead bookie stays among those that may be chosen."""


@dataclass(slots=True)
class Outcome:
    """What became of a run. ``marks`` count what is worth to have happened: a run in which nothing does shows nothing."""

    schedule: Schedule
    tape: list[int]
    steps: int
    faults: Counter[str]
    marks: Counter[str]
    violation: Violation | None = None
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    """Of tape, end of the ledger and trace: two runs with the same are the same run."""
    allowed: Counter[str] = field(default_factory=Counter)
    """The steps of the specification that the run took."""
    actions: list[Action] = field(default_factory=list)
    """What was done, as the specification names it."""


class Run:
    """Sets the actors up and leads them through the phases. ``tests/scenarios`` give a schedule of their own."""

    def __init__(
        self, schedule: Schedule, choices: Choices, *, is_traced: bool = False, tell: Tell | None = None, driver: Any = None
    ) -> None:
        """``tell`` is told of the protocol's actions. ``driver``: whole/driver.py, or None."""
        self.schedule = schedule
        first = _new_metadata(schedule)
        self.invariants = Invariants(first)
        self.world = VirtualTimeWorld(choices, self.invariants, schedule.weather, is_traced=is_traced)
        self.world.list_available = self._available
        self.world.driver = driver
        if tell is not None:
            self.world.observed = Observed(tell, self.invariants.history)
        self.store = SimulatedMetadataStore(self.world, first, schedule.weather.stale_reads)
        self.bookies: dict[str, BookieActor] = {}
        for name in schedule.bookies:
            self._add_bookie(name)
        self.former = None if schedule.former is None else FormerClients(self.world, schedule.former, first)
        self.writer = Writer(self.world, schedule, first)
        self.recoverers = [
            Recoverer(f"recoverer{number + 1}", self.world, schedule, plan) for number, plan in enumerate(schedule.recoverers)
        ]
        self.readers = [
            Reader(f"reader{number + 1}", self.world, schedule, plan) for number, plan in enumerate(schedule.readers)
        ]
        self.world.racks.update(schedule.racks)
        self.replication = Replication(self.world, schedule, self.bookies, self.store)
        self.clients: list[Writer | Recoverer | Reader | LockingClient] = [self.writer, *self.recoverers, *self.readers]
        self.clients += self.replication.clients
        if schedule.intruder is not None:
            self.clients.append(Reader("intruder", self.world, schedule, schedule.intruder, is_intruder=True))
        by_name: dict[str, ClientProcess] = {one.name: one for one in self.clients}
        self.faults = Faults(self.world, schedule, self.bookies, by_name, self.store)

    def play(self) -> None:
        """All phases. Raises Violation."""
        self._chaos()
        self._heal()
        if self.store.is_deleted:
            return
        self._tail()
        self._recover()
        self.replication.mend(self._settle)
        self._deliver_what_was_held()
        self.replication.collect(self._settle)
        self._audit()

    # --- phases

    def _chaos(self) -> None:
        if self.former is not None and self.schedule.former is not None:
            self.former.begin()
            self.world.run(self.schedule.former.lead_ms)
        for client in self.clients:
            client.begin()
        self.faults.begin()
        self.world.run(self.schedule.chaos_ms)

    def _heal(self) -> None:
        world = self.world
        world.note("-", "faults end")
        world.weather, world.is_calm = Weather(), True
        self.store.stale_percent = 0
        self.faults.end()
        self.replication.end_dead_sessions()
        self._join_if_too_few()
        world.heal(but=self.writer.name if self.writer.is_stopped else None)
        self._settle()
        for client in self.clients:
            is_over = client.is_done or client.is_stopped or not client.is_alive
            self.invariants.require(is_over, "I14", f"{client.name} does not come to an end although nothing fails any more")

    def _tail(self) -> None:
        """A reader who comes now sees everything that an idle, living writer was told is confirmed."""
        history = self.invariants.history
        if not self.writer.is_idle or history.current.state is not LedgerState.OPEN or history.acked < 0:
            return
        self.world.count("idle tails")
        tailer = Tailer("tailer", self.world, self.schedule, history.acked)
        tailer.begin()
        self._settle()
        problem = f"a reader who waits sees {tailer.seen}, one who asks {tailer.asked}; confirmed is {history.acked}"
        is_visible = tailer.is_done and tailer.seen >= history.acked and tailer.asked in (None, history.acked)
        self.invariants.require(is_visible, "I16", problem)

    def _recover(self) -> None:
        self.world.note("-", "a fresh recoverer")
        closer = Recoverer("closer", self.world, self.schedule, RecovererPlan(0, tries=5))
        closer.begin()
        self._settle()
        self.invariants.require(closer.closed is not None, "I14", f"the ledger cannot be closed: {closer.error}")

    def _deliver_what_was_held(self) -> None:
        self.world.note("-", "what was held back arrives")
        self.world.heal()
        for client in self.clients:
            client.go_on()
        self._settle()
        is_over = self.writer.is_done or not self.writer.is_alive
        self.invariants.require(is_over, "I14", "the writer of a closed ledger goes on")

    def _audit(self) -> None:
        """A reader that comes last finds every entry, also if all bookies were started again."""
        self.world.note("-", "the final audit")
        if self.world.choices.chance(25, "restart of all bookies"):
            for bookie in self.bookies.values():
                if self.schedule.skips_journal:
                    bookie.stop_cleanly()
                else:
                    bookie.crash(is_machine=True)
                bookie.start()
        auditor = Recoverer("auditor", self.world, self.schedule, RecovererPlan(0, tries=1))
        auditor.begin()
        self._settle()
        last, read = self.invariants.history.last_entry_id, self.invariants.history.read_up_to
        problem = f"the ledger ends at {last} and can be read up to {read} only: {auditor.error}"
        self.invariants.require(auditor.has_read and read == last, "I13", problem)

    # --- inside

    def _settle(self) -> None:
        self.world.run(self.world.now_ms + SETTLE_MS)

    def _add_bookie(self, name: str) -> None:
        number = len(self.bookies) + 1
        self.bookies[name] = BookieActor(name, self.world, self.schedule.bookie_config, number)
        self.bookies[name].sync_ms = self.schedule.sync_ms
        self.bookies[name].of_apache = self.schedule.apache.__contains__
        if self.schedule.has_cookies:
            self.bookies[name].give_cookie().is_stopped = self.world.is_calm
        if self.schedule.skips_journal:
            self.bookies[name].on_limbo = SelfRepair(self.bookies[name], self.world, self.schedule).limbo_began
        self.bookies[name].start()

    def _join_if_too_few(self) -> None:
        """An operator adds bookies until an ensemble can be had of such that never lost anything."""
        lost = self.invariants.history.lossy | self.invariants.history.foreign
        healthy = sum(one.is_up and name not in lost for name, one in self.bookies.items())
        for _ in range(self.schedule.shape[0] - healthy):
            self._add_bookie(f"b{len(self.bookies) + 1}")

    def _available(self) -> list[str]:
        now_ms = self.world.now_ms
        return [name for name, one in self.bookies.items() if one.is_up or 0 <= now_ms - one.down_since_ms < REGISTERED_MS]


def run_choices(
    choices: Choices,
    *,
    is_traced: bool = False,
    replicated_percent: int = REPLICATED_PERCENT,
    restored_percent: int = RESTORED_PERCENT,
    unjournaled_percent: int = UNJOURNALED_PERCENT,
) -> Outcome:
    """Draw a schedule and play it."""
    percents = Percents(replicated_percent, restored_percent, unjournaled_percent)
    schedule = draw_schedule(choices, percents)
    actions: list[Action] = []
    outcome = play(Run(schedule, choices, is_traced=is_traced, tell=actions.append))
    return judged(outcome, actions) if outcome.violation is None else outcome


def judged(outcome: Outcome, actions: list[Action]) -> Outcome:
    """Hold what was done against the specification. After the run: the invariants say more of what is wrong, and come first."""
    outcome.actions = actions
    try:
        outcome.allowed = judge(actions).counts
    except NotAllowedError as problem:
        outcome.violation = Violation("I18", str(problem))
        outcome.trace.append(f"VIOLATION {outcome.violation}")
    return outcome


def play(run: Run) -> Outcome:
    """Play a run to its end or to a violation; an exception out of shipped code is one, too."""
    violation: Violation | None = None
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # simulated processes do not log
    try:
        run.play()
    except Violation as found:
        violation = found
    except Exception as problem:
        violation = Violation("I0", f"{type(problem).__name__}: {problem}")
        violation.__cause__ = problem
    finally:
        logging.disable(logged)
    world, choices = run.world, run.world.choices
    if violation is not None:
        world.note("-", f"VIOLATION {violation}")
    trace = world.trace or []
    seen = (choices.tape, world.now_ms, world.steps, run.invariants.history.current, trace)
    digest = sha256(repr(seen).encode()).hexdigest()
    return Outcome(run.schedule, choices.tape, world.steps, world.faults, _marks(run), violation, trace, digest)


def _marks(run: Run) -> Counter[str]:
    history = run.invariants.history
    metadata, states = history.current, [one.state for one in history.metadata]
    return Counter(
        {
            "entries acked": history.acked + 1,
            "entries recovered beyond the acked ones": max(0, (metadata.last_entry_id or 0) - history.acked),
            "bookies replaced": history.replaced,
            "ensemble changes": sum(a.fragments != b.fragments for a, b in itertools.pairwise(history.metadata)),
            "closed by a recoverer": metadata.is_closed and LedgerState.IN_RECOVERY in states,
            "closed by the writer": metadata.is_closed and LedgerState.IN_RECOVERY not in states,
            "bookies that fenced": len(history.fenced),
        }
    )


def _new_metadata(schedule: Schedule) -> LedgerMetadata:
    ensemble_size, write_quorum, ack_quorum = schedule.shape
    options = LedgerOptions(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType.HMAC if schedule.password else DigestType.CRC32C,
        password=schedule.password,
    )
    return new_ledger(schedule.ledger_id, options, schedule.bookies[:ensemble_size], created_ms=0, creator_token=1)
