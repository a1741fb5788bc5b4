"""What the processes of a duel share: the metadata store, the bookies, what is under way, the weather, the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import Mock

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.errors import NoSuchLedgerError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.log_handle import LedgerAccess, Log, TierTables
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import Retention
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import StoreChange, TransactionFailedError
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Violation
from tests.simulation.logs.audit import LogAudit
from tests.simulation.logs.baton import Arrival, Baton, Process
from tests.simulation.logs.history import LogHistory
from tests.simulation.logs.lake import Lake, tiered_payloads
from tests.simulation.logs.ledgers import ZNODES, Bookies, LedgerReader, Ledgers, LedgerWriter, first_metadata
from tests.simulation.logs.tree import Fate, Session, State, Surroundings, Tree

LOG = "duel"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class LogWeather:
    """How often, in percent of calls, something befalls a process; deaths in a thousand of its turns."""

    broken: int = 0
    cut_off: int = 0
    lag: int = 0
    deaths: int = 0
    hours: int = 0
    """Turns in a thousand after which hours pass at once."""
    timeouts: int = 0
    """Turns in a thousand after which an append finds no quorum in time."""
    cut_uploads: int = 0
    late_commits: int = 0
    """Of files of a tier."""
    slow_ms: int = 1
    """How often slow bookies get, or say, something."""


def draw_weather(choices: Choices) -> LogWeather:
    return LogWeather(
        choices.pick((0, 3, 8), "broken"),
        choices.pick((0, 1, 3), "cut off"),
        choices.pick((0, 10, 30), "lag"),
        choices.pick((0, 1, 4), "deaths"),
        choices.pick((0, 0, 3), "hours"),
        choices.pick((0, 0, 5), "time-outs"),
        slow_ms=choices.pick((20, 100, 500), "slowness"),
    )


class DuelWorld:
    """``now_ms`` is the metadata store's own clock; processes may have others."""

    def __init__(self, choices: Choices, *, is_traced: bool = False) -> None:
        self.choices = choices
        self.now_ms = 30 * DAY_MS
        self.turns = 0
        self.weather = LogWeather()
        self.tree = Tree(lambda: self.now_ms)
        self.bookies: dict[int, Bookies] = {}
        self.history = LogHistory()
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.trace: list[str] | None = [] if is_traced else None
        self.baton = self.new_baton()
        self._in_flight: list[Sequence[StoreChange]] = []
        self.later: list[Callable[[], object]] = []
        """Commits to a catalog that arrive late."""
        self.lake: Lake | None = None
        """Where the log may have a tier."""
        self._ids = 0
        self._told = 0
        Session(self.tree, Surroundings()).ensure_path(ZNODES.root)
        plain = Session(self.tree, Surroundings())
        plain_logs = LogStore(plain, ZNODES, lambda: self.now_ms, self.draw_id, recover_ledger=_no_ledgers)
        self.uid = plain_logs.open(LOG, create=True)
        plain_logs.set_retention(LOG, self.uid, Retention(choices.pick((7 * 24 * 3600, 3600, 60), "retention")))
        self.audit = LogAudit(self.uid, self.bookies)
        self.tree.on_write = self._written

    def _written(self, paths: Sequence[str], state: State) -> None:
        """The first violation is the one that counts: who catches it may go on and do more damage."""
        try:
            self.audit.written(paths, state)
        except Violation as violation:
            self.baton.fail(violation)
            raise

    def new_baton(self) -> Baton:
        """Those of the last one are over."""
        return Baton(self.choices, self._arrivals, self._on_turn)

    @property
    def the_lake(self) -> Lake:
        assert self.lake is not None, "the log of this duel has no tier"
        return self.lake

    def draw_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def new_ledger_id(self) -> int:
        self._ids += 1
        self.audit.ledger_created(self._ids)
        return self._ids

    def tell(self) -> int:
        """The time, for the history: later than whatever was told before."""
        self._told += 1
        return self._told

    def note(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:>11}  {who:<10} {what}")

    def delay(self, changes: Sequence[StoreChange]) -> None:
        self._in_flight.append(changes)

    def _arrivals(self, is_idle: bool) -> list[Arrival]:
        is_late = is_idle or self.now_ms % self.weather.slow_ms == 0
        found = [arrival for one in self.bookies.values() if is_late or not one.is_slow for arrival in one.arrivals()]
        return found + ([self._land] if self._in_flight else []) + ([self._land_in_lake] if self.later else [])

    def _land_in_lake(self) -> None:
        landed = self.later.pop(self.choices.choose(len(self.later), "which commit lands"))()
        self.note("-", f"a delayed commit to the table {'lands' if landed else 'is refused'}")
        self.marks["late snapshots" if landed else "late snapshots refused"] += 1

    def _land(self) -> None:
        changes = self._in_flight.pop(self.choices.choose(len(self._in_flight), "which write lands"))
        try:
            self.tree.apply(changes)
            self.note("-", f"a delayed write lands: {changes[0].path}")
            self.marks["writes that landed late"] += 1
        except TransactionFailedError:
            self.note("-", f"a delayed write is refused: {changes[0].path}")

    def _on_turn(self, process: Process) -> None:
        self.now_ms += 1
        self.turns += 1
        if process.is_alive and self._happens(self.weather.deaths, "dies"):
            self.note(process.name, "is killed")
            process.kill()
        if self._happens(self.weather.hours, "hours"):
            self.now_ms += self.choices.pick((HOUR_MS, 12 * HOUR_MS, 8 * DAY_MS), "how long")

        waiting = [one.writer for one in self.bookies.values() if one.writer is not None and one.writer.is_waiting]
        if waiting and self._happens(self.weather.timeouts, "append times out"):
            self.choices.pick(waiting, "whose").time_out()

    def _happens(self, permille: int, what: str) -> bool:
        happens = permille > 0 and self.choices.choose(1000, what) >= 1000 - permille
        self.faults[what] += happens
        return happens


class Machine(Surroundings):
    """A process with its session, its ledgers and its clock."""

    def __init__(self, name: str, world: DuelWorld, body: Callable[[Machine], None]) -> None:
        self.name = name
        self.world = world
        self._process = world.baton.spawn(name, lambda: body(self))
        self.session = Session(world.tree, self)
        self.ledgers = Ledgers(self, self.session, world.bookies, world.choices)
        self._outage = 0
        """Calls that find no connection from now on."""
        self._skew_ms = world.choices.pick((0, -DAY_MS, 8 * DAY_MS), "clock")
        self.logs = LogStore(self.session, ZNODES, self.clock_ms, world.draw_id, recover_ledger=self.ledgers.recover)
        access = LedgerAccess(
            self.open,
            lambda options, job: self.create_ledger(job),
            window_bytes=150,
            existing_ledgers=lambda ids: [],
            tables=Mock(spec=TierTables),
        )
        self.log = Log(self.logs, LOG, world.uid, access)

    def open(self, ledger_id: int) -> LedgerReader:
        """As ``Ledgers.open``; or from the tier, where bookies do not have the ledger any more."""
        try:
            return self.ledgers.open(ledger_id)
        except NoSuchLedgerError:
            payloads = tiered_payloads(self, ledger_id) if self.world.lake is not None else None
            if payloads is None:
                raise
            return LedgerReader(Bookies(ledger_id, payloads, len(payloads)), len(payloads) - 1, True)

    def clock_ms(self) -> int:
        return self.world.now_ms + self._skew_ms

    def note(self, what: str) -> None:
        self.world.note(self.name, what)

    def create_ledger(self, job: WriteJob) -> LedgerWriter:
        """As ``BookKeeper.create_ledger`` with a job. Raises JobEndedError, MetadataUnavailableError."""
        store = LedgerStore(self.session, ZNODES)
        self.logs.jobs.ensure(job)
        metadata = first_metadata(self.world.new_ledger_id(), job.ledger_tags())
        changes = self.logs.jobs.creation_of_ledger(job, metadata.ledger_id)
        writer = self.ledgers.writer(metadata)
        store.create(metadata, changes, lambda failure: self.logs.jobs.explain(job, failure))
        return writer

    def fork(self, body: Callable[[], object]) -> None:
        """Another thread of the same process."""
        self.world.baton.spawn(self.name, body).join_group(self._process)

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def wait(self, until: Callable[[], bool], what: str) -> None:
        self.world.baton.current.wait(until, what)

    # --- Surroundings

    def turn(self, what: str) -> None:
        self.world.baton.current.turn()
        self.note(what)

    def fate(self, what: str) -> Fate:
        if self._outage:
            self._outage -= 1
        elif not self.befalls(self.world.weather.broken, "broken writes"):
            return Fate.ANSWERED
        else:
            self._outage = self.world.choices.pick((0, 0, 3, 8), "outage")
        fate = self.world.choices.pick((Fate.REPLY_LOST, Fate.REQUEST_LOST, Fate.DELAYED), "fate")
        self.note(f"the connection breaks: {fate.name.lower()}")
        return fate

    def is_cut_off(self, what: str) -> bool:
        if self._outage:
            self._outage -= 1
            return True
        return self.befalls(self.world.weather.cut_off, "reads cut off")

    def lag(self, most: int) -> int:
        if most == 0 or not self.befalls(self.world.weather.lag, "stale reads"):
            return 0
        return self.world.choices.between(1, most, "writes behind")

    def delay(self, changes: Sequence[StoreChange]) -> None:
        self.world.delay(changes)

    def befalls(self, percent: int, what: str) -> bool:
        befalls = self.world.choices.chance(percent, what)
        self.world.faults[what] += befalls
        return befalls


def _no_ledgers(ledger_id: int) -> LedgerMetadata:
    raise AssertionError("there are no ledgers yet")
