"""What a schedule of a log rule is: a story with one log that must not end in rows that are lost, doubled or out of order.

A ``LogCase`` names the guard that keeps its schedule from going wrong, and can take it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bk_spark.errors import LedgerFencedError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import CommitKind, CommittedLedger, LogVersion
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore, StoreChange
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.log.log_world import LogWorld
from tests.unit.schedule_cases import ScheduleCase, ScheduleCases

DAY_MS = 24 * 3_600_000


class Violated(AssertionError):
    """Rows are lost, doubled or out of order. Nothing else that goes wrong in a schedule is one of these."""


def must(condition: bool, problem: str) -> None:
    if not condition:
        raise Violated(problem)


class Scene(LogWorld):
    """A store with a clock of its own, and sessions on it. ``now_ms`` is what clients take for the time."""

    def __init__(self) -> None:
        self.store_ms = 100 * DAY_MS
        tree = MemoryTree(lambda: self.store_ms)
        MemoryStore(tree).ensure_path("/ledgers")
        super().__init__(lambda: MemoryStore(tree), Znodes("/ledgers"))

    def write(self, name: str, rows: int = 10, **more: Any) -> CommittedLedger:
        """Append one ledger to a log."""
        job = self.logs.jobs.begin(name)
        ledger = self.job_ledger(job, rows)
        self.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,), **more))
        return ledger

    def compact(self, name: str, ledgers: Sequence[CommittedLedger]) -> CommittedLedger:
        """Put one ledger with the same rows in their place."""
        job = self.logs.jobs.begin(name)
        one = self.job_ledger(job, sum(ledger.rows for ledger in ledgers))
        remove = tuple(ledger.ledger_id for ledger in ledgers)
        self.logs.commit(job, CommitRequest(CommitKind.COMPACT, (one,), remove=remove))
        return one

    def must_be_whole(self, name: str, version: int | None = None) -> None:
        """What a version lists is there."""
        for ledger_id in self.listed(name, version):
            found = self.store.get_many([self.znodes.ledger(ledger_id)])
            must(found != [None], f"version {version or 'head'} lists ledger {ledger_id}, which is deleted: its rows are lost")


LogCase = ScheduleCase[Scene]
LogCases = ScheduleCases[Scene]


@dataclass
class Interposed:
    """A session in whose calls others come first: an action runs once, before the first call that fits."""

    store: MetadataStore
    actions: list[tuple[str, str, Callable[[], Any]]] = field(default_factory=list)

    def before(self, call: str, path: str, action: Callable[[], Any]) -> None:
        """Before the next ``call`` whose path, or that of one of its operations, ends with ``path``."""
        self.actions.append((call, path, action))

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            for action in [one for one in self.actions if one[0] == name and _ends_with(arguments[0], one[1])]:
                self.actions.remove(action)
                action[2]()
            return target(*arguments, **options)

        return call if callable(target) else target


def _ends_with(what: str | Sequence[str | StoreChange], suffix: str) -> bool:
    paths = [what] if isinstance(what, str) else [one if isinstance(one, str) else one.path for one in what]
    return any(path.endswith(suffix) for path in paths)


@dataclass
class CutOff:
    """A session whose connection breaks while its first change of a head is on its way; ``land`` lets that arrive."""

    store: MetadataStore
    in_flight: list[StoreChange] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if not self.in_flight and name == "transaction" and _ends_with(arguments[0], "/head"):
                self.in_flight = list(arguments[0])
            if self.in_flight:
                raise MetadataUnavailableError("memory://", "connection lost")
            return target(*arguments, **options)

        return call if callable(target) else target

    def land(self) -> None:
        self.store.transaction(self.in_flight)


class Died(BaseException):
    """The process ends here; nothing that it holds catches it."""


def die() -> None:
    raise Died


class Bookies:
    """Ledgers of entries, and who of their writers was fenced: a recovery ends a ledger behind its last stored entry."""

    def __init__(self, scene: Scene) -> None:
        self.entries: dict[int, list[str]] = {}
        self._scene = scene
        self._fenced: set[int] = set()
        self.logs = LogStore(scene.new_session(), scene.znodes, lambda: scene.now_ms, recover_ledger=self.recover)

    def add(self, ledger_id: int, entry: str) -> None:
        """Store an entry and confirm it. Raises LedgerFencedError."""
        if ledger_id in self._fenced:
            raise LedgerFencedError(ledger_id)
        self.entries.setdefault(ledger_id, []).append(entry)

    def close(self, ledger_id: int) -> CommittedLedger:
        return self._scene.close_ledger(ledger_id, len(self.entries.setdefault(ledger_id, [])))

    def recover(self, ledger_id: int) -> LedgerMetadata:
        self._fenced.add(ledger_id)
        self.close(ledger_id)
        return LedgerMetadata.decode(ledger_id, self._scene.store.get(self._scene.znodes.ledger(ledger_id)).value)

    def lead(self, name: str) -> int:
        """Open a log; gives back the ledger to add to."""
        job = self.logs.jobs.begin(name)
        ledger_id = self._scene.open_ledger(job, self.logs)
        self.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=ledger_id))
        return ledger_id

    def write(self, name: str, entry: str) -> LogVersion:
        """Append a ledger with one entry, as a Spark job does."""
        job = self.logs.jobs.begin(name)
        ledger_id = self._scene.open_ledger(job, self.logs)
        self.add(ledger_id, entry)
        return self.logs.commit(job, CommitRequest(CommitKind.APPEND, (self.close(ledger_id),)))

    def content(self, name: str) -> list[str]:
        """All entries of a log, in its order."""
        snapshot = self.logs.reader.snapshot(name)
        ids = [one.ledger_id for one in snapshot.ledgers] + [one.ledger_id for one in snapshot.open_ledgers]
        return [entry for ledger_id in ids for entry in self.entries.get(ledger_id, [])]


def log_exists(scene: Scene, name: str) -> bool:
    try:
        scene.logs.reader.snapshot(name)
    except NoSuchLogError:
        return False
    return True


def ended(call: Callable[[], object], *errors: type[BaseException]) -> bool:
    """Whether a call was refused with one of ``errors``."""
    try:
        call()
    except errors:
        return True
    return False
