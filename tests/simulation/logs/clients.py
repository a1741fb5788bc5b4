"""The processes of a duel that write batches, compact, truncate, vacuum and sweep. They hold shipped code, and do what Spark
and operators do with it; log_leaders.py has those that append entries, log_readers.py those that read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bk_spark.errors import (
    AddQuorumTimeoutError,
    JobEndedError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    StorageError,
)
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.orphans import Orphans
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.leader.leadership import end_of
from bk_spark.log.stored.values import CommitKind, CommittedLedger, LogVersion
from tests.simulation.logs.history import Batch
from tests.simulation.logs.ledgers import length_of
from tests.simulation.logs.world import DAY_MS, HOUR_MS, LOG, Machine

EXPECTED = (
    MetadataUnavailableError,
    MetadataConflictError,
    JobEndedError,
    NoSuchLedgerError,
    AddQuorumTimeoutError,
    LedgerFencedError,
    LedgerClosedError,
    StorageError,
)
"""What may come of a call whose connection breaks, or that others get in the way of."""

TRIES = 4


def write_ledger(machine: Machine, job: WriteJob, payloads: Sequence[bytes]) -> CommittedLedger:
    """A task: create, fill, close."""
    writer = machine.create_ledger(job)
    for payload in payloads:
        writer.append(payload)
    writer.close()
    return end_of(writer)


@dataclass(slots=True)
class Job:
    """One try of a driver: a job, its tasks, a commit; then ``finish`` or ``abort``."""

    machine: Machine
    kind: CommitKind = CommitKind.APPEND
    application: tuple[str, int] | None = None
    remove: tuple[int, ...] = ()

    def write(self, parts: Sequence[Sequence[bytes]], batch: Batch | None = None) -> LogVersion | None:
        """None where it failed. What is unknown stays so."""
        try:
            job = self.machine.logs.jobs.begin(LOG)
        except EXPECTED:
            return None
        self._speculate(job)
        ledgers: list[CommittedLedger] = []
        try:
            ledgers += [write_ledger(self.machine, job, part) for part in parts if part]
            version = self._commit(job, ledgers)
        except EXPECTED as problem:
            self.machine.note(f"fails: {problem}")
            self._abort(job, ledgers)
            return None
        if batch is not None:
            batch.committed = batch.committed or self.machine.world.tell()
        self._committed(job, ledgers, version)
        return version

    def _speculate(self, job: WriteJob) -> None:
        """A second attempt of a task, which nobody waits for."""
        if self.machine.world.choices.choose(5, "speculation") == 4:
            self.machine.fork(lambda: self._try(lambda: write_ledger(self.machine, job, [b"speculative"])))

    def _commit(self, job: WriteJob, ledgers: Sequence[CommittedLedger]) -> LogVersion:
        request = CommitRequest(self.kind, tuple(ledgers), remove=self.remove, application=self.application)
        return self.machine.logs.commit(job, request)

    def _committed(self, job: WriteJob, ledgers: Sequence[CommittedLedger], version: LogVersion) -> None:
        world, ids = self.machine.world, [one.ledger_id for one in ledgers]
        self.machine.note(f"version {version.version} is committed" if version.duplicate_of is None else "is a duplicate")
        if version.duplicate_of is not None:
            world.marks["duplicates"] += 1
            world.history.unlisted |= set(ids)
            return
        world.marks[f"commits to {self.kind.value}"] += 1
        self._try(lambda: self.machine.logs.jobs.finish(job, ids))

    def _abort(self, job: WriteJob, ledgers: Sequence[CommittedLedger]) -> None:
        if self._try(lambda: self.machine.logs.jobs.abort(job)):
            self.machine.world.marks["aborted jobs"] += 1
            self.machine.world.history.unlisted |= {one.ledger_id for one in ledgers}

    def _try(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except EXPECTED as problem:
            self.machine.note(f"fails: {problem}")
            return None


def batch_writer(count: int, kinds: Sequence[CommitKind] = (CommitKind.APPEND,)) -> Callable[[Machine], None]:
    """A user's batch writes: each is tried once, and may be lost."""

    def body(machine: Machine) -> None:
        choices = machine.world.choices
        for number in range(count):
            payloads = [b"%s:%d.%d" % (machine.name.encode(), number, n) for n in range(choices.choose(4, "rows"))]
            batch = machine.world.history.batch(payloads, machine.world.tell())
            cut = choices.choose(len(payloads) + 1, "cut")
            Job(machine, choices.pick(kinds, "kind")).write([payloads[:cut], payloads[cut:]], batch)

    return body


def stream_query(query: str, count: int) -> Callable[[Machine], None]:
    """A streaming query: a batch is tried until it is in, then the next one. Retries have its rows.

    Two of the same name are a query that was started again while its first driver lives on. What that one had committed
    may stand in the checkpoint, or not yet.
    """

    def body(machine: Machine) -> None:
        for number in range(count):
            payloads = [b"%s:%d.%d" % (query.encode(), number, n) for n in range(1 + number % 3)]
            batch = machine.world.history.batch(payloads, machine.world.tell(), (query, number))
            is_known = batch.committed is not None and machine.world.choices.choose(2, "checkpoint")
            if not is_known and not _is_in(machine, batch):
                return

    return body


def _is_in(machine: Machine, batch: Batch) -> bool:
    """Batches go in one after the other: Spark does not begin one before the last is committed."""
    for _ in range(TRIES):
        if Job(machine, application=batch.application).write([batch.payloads[:1], batch.payloads[1:]], batch) is not None:
            return True
    return False


def rest(machine: Machine, turns: int = 50) -> None:
    """Let others do some of their work: for up to so many turns of one's own."""
    for _ in range(machine.world.choices.choose(turns, "rests")):
        machine.turn("rests")


def compactor(count: int) -> Callable[[Machine], None]:
    """Puts one ledger in the place of some neighbours."""

    def body(machine: Machine) -> None:
        for _ in range(count):
            rest(machine)
            try:
                listed = machine.logs.reader.snapshot(LOG).ledgers
                stretch = _stretch(machine, listed)
                payloads = [one for ledger in stretch for one in _content(machine, ledger)]
            except EXPECTED:
                continue
            if stretch:
                Job(machine, CommitKind.COMPACT, remove=tuple(one.ledger_id for one in stretch)).write([payloads])

    return body


def _stretch(machine: Machine, listed: Sequence[CommittedLedger]) -> Sequence[CommittedLedger]:
    start = machine.world.choices.choose(len(listed), "first to compact")
    return listed[start : start + 1 + machine.world.choices.between(0, 3, "to compact")]


def _content(machine: Machine, ledger: CommittedLedger) -> list[bytes]:
    payloads = machine.ledgers.open(ledger.ledger_id).payloads(0)
    assert length_of(payloads) == ledger.length
    return payloads


def truncator(count: int) -> Callable[[Machine], None]:
    def body(machine: Machine) -> None:
        for _ in range(count):
            rest(machine)
            try:
                listed = machine.logs.reader.snapshot(LOG).ledgers
                if listed:
                    stays = listed[machine.world.choices.choose(len(listed), "stays first")]
                    machine.logs.truncate(LOG, machine.world.uid, stays.ledger_id)
                    machine.world.marks["truncations"] += 1
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")

    return body


def operator(count: int) -> Callable[[Machine], None]:
    """Vacuums the log and sweeps orphans, now and then."""

    def body(machine: Machine) -> None:
        for _ in range(count):
            rest(machine)
            machine.world.now_ms += machine.world.choices.pick((0, HOUR_MS, 2 * DAY_MS), "until the next time")
            try:
                if machine.world.choices.choose(2, "what"):
                    report = LogVacuum(machine.logs).run(LOG)
                    machine.world.marks["ledgers vacuumed"] += report.deleted_ledgers
                else:
                    machine.world.marks["orphans swept"] += len(list(Orphans(machine.logs).sweep()))
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")

    return body
