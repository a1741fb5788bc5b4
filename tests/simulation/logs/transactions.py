"""Duels for several logs: transactions over them beside commits to one, sweeps, vacuums, and readers of all of them.

T1  a reader of several logs sees a transaction in all of its logs, or in none
T2  a transaction is in its logs once, or not at all; one that was told is in
T3  a ledger that a log lists is there
T4  a stream gets to the end, and misses nothing

Values that are read together are of different moments here, as on ZooKeeper: other processes have their turns in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bk_spark.errors import MetadataConflictError, NoSuchLedgerError
from bk_spark.log.changes.commit_logs import LogCommit
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.orphans import Orphans
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import CommitKind, Head, Retention
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.order import READ
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.log.stream.whole_transactions import MadeVersion, whole_ends
from bk_spark.metadata.store import Versioned
from tests.simulation.engines.choices import Choices
from tests.simulation.logs.audit import require
from tests.simulation.logs.clients import EXPECTED, TRIES, rest, write_ledger
from tests.simulation.logs.duel import DuelOutcome, outcome_of
from tests.simulation.logs.ledgers import ZNODES
from tests.simulation.logs.tree import Session, Surroundings
from tests.simulation.logs.world import DAY_MS, HOUR_MS, DuelWorld, LogWeather, Machine, draw_weather

NAMES = ("a", "b", "c")


class TornSession(Session):
    """Reads several values one after the other."""

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        return [one for path in paths for one in super(TornSession, self).get_many([path])]


@dataclass(slots=True)
class Written:
    """What one transaction puts in: the same payload into each of its logs."""

    payload: bytes
    logs: tuple[str, ...]
    is_told: bool = False


@dataclass(slots=True)
class SeveralLogs:
    """The logs of a duel, and what was written to them."""

    world: DuelWorld
    uids: dict[str, str]
    written: dict[bytes, Written] = field(default_factory=dict)

    @staticmethod
    def of(world: DuelWorld) -> SeveralLogs:
        logs = LogStore(Session(world.tree, Surroundings()), ZNODES, lambda: world.now_ms, world.draw_id, recover_ledger=_none)
        uids = {name: logs.open(name, create=True) for name in NAMES}
        for name, uid in uids.items():
            logs.set_retention(name, uid, Retention(world.choices.pick((7 * 24 * 3600, 60), "retention")))
        return SeveralLogs(world, uids)

    def check_seen(self, who: str, seen: Mapping[str, Sequence[bytes]], *, invariant: str = "T1") -> None:
        """Each transaction is in all of its logs, once, or in none."""
        counts = {name: Counter(payloads) for name, payloads in seen.items()}
        for one in self.written.values():
            found = {name: counts[name][one.payload] for name in one.logs}
            require(set(found.values()) in ({0}, {1}), invariant, f"{who} sees {one.payload!r} so often: {found}")
        self.world.marks["looks at all logs"] += 1


def _none(ledger_id: int) -> None:  # type: ignore[misc]
    raise AssertionError("nobody leads these logs")


def torn(machine: Machine) -> LogStore:
    """The machine's logs, with reads that are not of one moment."""
    session = TornSession(machine.world.tree, machine)
    machine.session = session
    machine.logs = LogStore(session, ZNODES, machine.clock_ms, machine.world.draw_id, recover_ledger=machine.ledgers.recover)
    return machine.logs


# --- who takes part


def transactor(logs: SeveralLogs, count: int, application: str | None = None) -> Callable[[Machine], None]:
    """Transactions one after the other. Those of an application are tried until they are in, also by two of one name."""

    def body(machine: Machine) -> None:
        torn(machine)
        choices = machine.world.choices
        for number in range(count):
            name = application or machine.name
            payload = b"%s:%d" % (name.encode(), number)
            first = choices.choose(3, "left out") if application is None else number % 3
            into = tuple(one for place, one in enumerate(NAMES) if place != first)
            one = logs.written.setdefault(payload, Written(payload, into))
            of = None if application is None else (application, number)
            if not any(_transacted(machine, one, of) for _ in range(TRIES if of else 1)) and of:
                return

    return body


def _transacted(machine: Machine, one: Written, application: tuple[str, int] | None) -> bool:
    begun: list[WriteJob] = []
    try:
        commits = []
        for name in one.logs:
            begun.append(machine.logs.jobs.begin(name))
            ledger = write_ledger(machine, begun[-1], [one.payload])
            commits.append(LogCommit(begun[-1], CommitRequest(CommitKind.APPEND, (ledger,))))
        made = machine.logs.commit_logs(commits, application)
    except EXPECTED as problem:
        machine.note(f"fails: {problem}")
        _abort(machine, begun)
        return False
    one.is_told = True
    machine.world.marks["duplicates" if made.is_duplicate else "transactions"] += 1
    return True


def _abort(machine: Machine, jobs: Sequence[WriteJob]) -> None:
    """As the end of a block does it, whatever the commit has done before."""
    try:
        machine.logs.abort_logs(jobs)
        machine.world.marks["aborted transactions"] += 1
    except EXPECTED as problem:
        machine.note(f"fails: {problem}")


def writer_of_one(count: int) -> Callable[[Machine], None]:
    """Commits to one log, between those of several."""

    def body(machine: Machine) -> None:
        logs = torn(machine)
        for number in range(count):
            rest(machine, 20)
            try:
                job = logs.jobs.begin(machine.world.choices.pick(NAMES, "log"))
                ledger = write_ledger(machine, job, [b"%s:%d" % (machine.name.encode(), number)])
                logs.commit_or_abort(job, CommitRequest(CommitKind.APPEND, (ledger,)))
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")

    return body


def sweeper(count: int) -> Callable[[Machine], None]:
    """Sweeps orphans, and vacuums the logs."""

    def body(machine: Machine) -> None:
        logs = torn(machine)
        for _ in range(count):
            rest(machine)
            machine.world.now_ms += machine.world.choices.pick((0, HOUR_MS, 2 * DAY_MS), "until the next time")
            try:
                machine.world.marks["orphans swept"] += len(list(Orphans(logs).sweep()))
                LogVacuum(logs).run(machine.world.choices.pick(NAMES, "log"))
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")

    return body


def reader(logs: SeveralLogs, rounds: int) -> Callable[[Machine], None]:
    """Reads all logs as they stand now, or stood at a time."""

    def body(machine: Machine) -> None:
        torn(machine)
        for _ in range(rounds):
            rest(machine, 10)
            try:
                seen = _at_one_moment(machine, logs, is_now=machine.world.choices.choose(2, "when") == 0)
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")
                continue
            logs.check_seen(machine.name, seen)

    return body


def _at_one_moment(machine: Machine, logs: SeveralLogs, *, is_now: bool) -> dict[str, list[bytes]]:
    names = {uid: name for name, uid in logs.uids.items()}
    heads = machine.logs.names.heads(names)
    versions = {uid: head.version for uid, head in heads.items()}
    if not is_now:
        times = sorted(head.time_ms for head in heads.values())
        at = machine.world.choices.pick(times, "time") - machine.world.choices.choose(3, "before")
        for uid, head in heads.items():
            _check_kept(machine, uid, head, at)
        versions = {uid: machine.logs.reader.version_at(names[uid], uid, at, head) for uid, head in heads.items()}
    return {names[uid]: _listed(machine, names[uid], uid, version) for uid, version in versions.items()}


def _check_kept(machine: Machine, uid: str, head: Head, at_ms: int) -> None:
    """Raise what readers expect for a time before the oldest version of a log, which a vacuum left."""
    if head.oldest_version and machine.logs.reader.version(head.name, uid, head.oldest_version).time_ms > at_ms:
        raise MetadataConflictError(f"log '{head.name}'", "it does not keep what it held at that time")


def _listed(machine: Machine, name: str, uid: str, version: int) -> list[bytes]:
    listing = machine.logs.reader.listing(name, uid, version)
    return [payload for ledger in listing.closed for payload in machine.world.bookies[ledger.ledger_id].pushed]


class SeveralStream:
    """Follows all logs under limits that cut each of them anywhere. Hears of each log at another moment."""

    def __init__(self, logs: SeveralLogs) -> None:
        self._logs = logs
        self._stands: dict[str, StreamPosition] = {uid: behind(0) for uid in logs.uids.values()}
        self.read: dict[str, list[bytes]] = {name: [] for name in NAMES}

    def body(self, rounds: int, *, is_last: bool = False) -> Callable[[Machine], None]:
        def body(machine: Machine) -> None:
            torn(machine)
            for _ in range(rounds):
                rest(machine, 10)
                try:
                    self._next_batch(machine, is_last=is_last)
                except EXPECTED as problem:
                    machine.note(f"fails: {problem}")
                    continue
                self._logs.check_seen(machine.name, self.read)

        return body

    def _next_batch(self, machine: Machine, *, is_last: bool) -> None:
        heard = _Heard(machine, {uid: name for name, uid in self._logs.uids.items()})
        newest = {uid: heard.newest(uid, start) for uid, start in self._stands.items()}
        ends = {uid: newest[uid] if is_last else heard.limited(uid, self._stands[uid], end) for uid, end in newest.items()}
        ends = dict(whole_ends(heard, self._stands, ends, newest))
        found = {uid: heard.payloads(uid, self._stands[uid], end) for uid, end in ends.items()}
        for uid, payloads in found.items():
            self.read[heard.names[uid]] += payloads
        self._stands = ends
        machine.world.marks["rows streamed"] += sum(map(len, found.values()))


class _Heard:
    """What a stream has heard of its logs: ``FollowedLogs``."""

    def __init__(self, machine: Machine, names: Mapping[str, str]) -> None:
        self._machine = machine
        self.names = names
        self._heads: dict[str, Head] = {}

    def newest(self, uid: str, start: StreamPosition) -> StreamPosition:
        self._heads[uid] = self._machine.logs.names.head(self.names[uid], uid)
        return self._follower(uid).newest(self._heads[uid], {}, start).position

    def limited(self, uid: str, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        places = [start, *self._places(uid, start, end)]
        return places[self._machine.world.choices.choose(len(places), "limit")]

    def payloads(self, uid: str, start: StreamPosition, end: StreamPosition) -> list[bytes]:
        found = self._follower(uid).stretches(start, end, self._heads[uid], fail_on_data_loss=True)
        bookies = self._machine.world.bookies
        return [p for one in found for p in bookies[one.ledger_id].pushed[one.first_entry_id : one.last_entry_id + 1]]

    def made(self, uid: str, after: int, last: int) -> list[MadeVersion]:
        first, newest = max(after + 1, 1), min(last, self._heads[uid].version)
        versions = self._machine.logs.reader.versions(self.names[uid], uid, first, newest)
        return [MadeVersion(one.version, one.time_ms, one.transaction) for one in versions if one.transaction is not None]

    def behind(self, uid: str, version: int) -> StreamPosition | None:
        return self._follower(uid).end_of_version(version, lambda _: None)

    def before(self, uid: str, version: int, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        return max((one for one in self._places(uid, start, end) if one.version < version), default=start)

    def awaits(self, uid: str) -> bool:
        return False

    def _places(self, uid: str, start: StreamPosition, end: StreamPosition) -> list[StreamPosition]:
        found = self._follower(uid).stretches(start, end, self._heads[uid], fail_on_data_loss=True)
        return [one.position_after for one in found]

    def _follower(self, uid: str) -> LogFollower:
        machine = self._machine
        return LogFollower(machine.logs.reader, self.names[uid], uid, READ, machine.ledgers.existing)


# --- one run


def run_transaction_duel(choices: Choices, *, is_traced: bool = False) -> DuelOutcome:
    """As ``run_duel``, for several logs."""
    return outcome_of(lambda: TransactionDuel(choices, is_traced=is_traced), choices)


class TransactionDuel:
    """Chaos → what is under way lands → the stream reads to the end, orphans are swept → the audit."""

    def __init__(self, choices: Choices, *, is_traced: bool = False) -> None:
        self.world = DuelWorld(choices, is_traced=is_traced)
        self._logs = SeveralLogs.of(self.world)
        self._stream = SeveralStream(self._logs)

    def play(self) -> None:
        """Raises Violation."""
        world, logs, choices = self.world, self._logs, self.world.choices
        for number in range(choices.between(1, 2, "transactors")):
            Machine(f"t{number}", world, transactor(logs, 3))
        for number in range(choices.choose(3, "queries")):
            Machine(f"query{number}", world, transactor(logs, 4, "q"))
        Machine("one", world, writer_of_one(3))
        Machine("reader", world, reader(logs, 6))
        Machine("stream", world, self._stream.body(6))
        if choices.choose(2, "sweeper"):
            Machine("sweeper", world, sweeper(3))
        world.weather = draw_weather(choices)
        world.baton.run()
        world.weather = LogWeather()
        world.note("-", "faults end")
        world.baton = world.new_baton()
        Machine("closer", world, self._close)
        world.baton.run()

    def _close(self, machine: Machine) -> None:
        torn(machine)
        for _ in range(3):
            self.world.now_ms += 9 * DAY_MS
            list(Orphans(machine.logs).sweep())
        for _ in range(2):
            self._stream.body(1, is_last=True)(machine)
        seen = {}
        for name, uid in self._logs.uids.items():
            version = machine.logs.names.head(name, uid).version
            seen[name] = _listed(machine, name, uid, version)
            self._check_there(machine, name, uid, version)
            require(sorted(seen[name]) == sorted(self._stream.read[name]), "T4", f"the stream read another log {name}")
        self._logs.check_seen("the audit", seen, invariant="T2")
        for one in self._logs.written.values():
            require(not one.is_told or one.payload in seen[one.logs[0]], "T2", f"{one} was told, and is not in")

    def _check_there(self, machine: Machine, name: str, uid: str, version: int) -> None:
        for ledger in machine.logs.reader.listing(name, uid, version).closed:
            try:
                machine.ledgers.versioned(ledger.ledger_id)
            except NoSuchLedgerError:
                require(False, "T3", f"log {name} lists ledger {ledger.ledger_id}, which is deleted")
