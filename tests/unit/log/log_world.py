"""A cluster's metadata for tests of logs: sessions on one store, ledgers made by hand, and scripted trouble."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from bk_spark.config import LedgerOptions
from bk_spark.errors import MetadataUnavailableError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.store import Create, Delete, MetadataStore, SetValue, StoreChange
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

BOOKIES = ("b1", "b2", "b3")


def is_commit(changes: Sequence[StoreChange]) -> bool:
    """Whether a transaction is a log's commit: nothing else sets or creates a head and ends a job."""
    heads = any(isinstance(one, (SetValue, Create)) and one.path.endswith("/head") for one in changes)
    return heads and any(isinstance(one, Delete) and one.path.endswith("/running") for one in changes)


@dataclass
class ScriptedStore:
    """A session that counts its calls, and on which a test plays one event each before or in place of the next commits."""

    store: MetadataStore
    script: list[Callable[[Sequence[StoreChange]], None]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    in_flight: list[Sequence[StoreChange]] = field(default_factory=list)
    fail_reads: bool = False

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)
        if not callable(target):
            return target

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments[0] if arguments else None))
            if self.fail_reads and name in ("get", "get_many", "sync"):
                raise MetadataUnavailableError("memory://", "cut off")
            return target(*arguments, **options)

        return call

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        self.calls.append(("transaction", changes))
        if self.script and is_commit(changes):
            self.script.pop(0)(changes)
        self.store.transaction(changes)

    def first(self, action: Callable[[], Any]) -> Callable[[Sequence[StoreChange]], None]:
        """Another session acts right before the transaction arrives."""
        return lambda changes: action() and None

    def lose_reply(self, changes: Sequence[StoreChange]) -> None:
        """The transaction takes effect, and the connection drops before the reply."""
        self.store.transaction(changes)
        raise MetadataUnavailableError("memory://", "connection lost")

    def delay(self, changes: Sequence[StoreChange]) -> None:
        """The connection drops while the transaction is on its way: ``land`` lets it arrive."""
        self.in_flight.append(changes)
        raise MetadataUnavailableError("memory://", "connection lost")

    def land(self) -> None:
        self.store.transaction(self.in_flight.pop())


@dataclass
class LogWorld:
    """Several sessions on one store, a clock, and ledgers."""

    new_session: Callable[[], MetadataStore]
    znodes: Znodes
    now_ms: int = 1_000_000
    ids: Any = field(default_factory=lambda: itertools.count(1))
    recovered: list[int] = field(default_factory=list)
    """Open ledgers that commits recovered, in order."""

    def __post_init__(self) -> None:
        self.store = self.new_session()
        self.logs = self.log_store(self.store)

    def log_store(self, store: Any) -> LogStore:
        return LogStore(store, self.znodes, lambda: self.now_ms, recover_ledger=self.recover)

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """As a client does it: the writer of an open ledger got ten entries confirmed."""
        self.recovered.append(ledger_id)
        self.close_ledger(ledger_id)
        stored = self.store.get(self.znodes.ledger(ledger_id))
        return LedgerMetadata.decode(ledger_id, stored.value)

    def close_ledger(self, ledger_id: int, entries: int = 10) -> CommittedLedger:
        """As its writer or a recovery does it; one that is closed stays as it is."""
        path = self.znodes.ledger(ledger_id)
        stored = self.store.get(path)
        metadata = LedgerMetadata.decode(ledger_id, stored.value)
        if not metadata.is_closed:
            metadata = metadata.closed_at(entries - 1, entries * 100)
            self.store.set(path, metadata.encode(), stored.version)
        return CommittedLedger.of_entries(metadata)

    def scripted(self) -> tuple[ScriptedStore, LogStore]:
        store = ScriptedStore(self.new_session())
        return store, self.log_store(store)

    def paths(self, uid: str) -> LogPaths:
        return LogPaths(self.znodes.log(uid))

    def new_metadata(self, custom: dict[str, bytes] | None = None, secret: bytes | None = None) -> LedgerMetadata:
        options = LedgerOptions(custom_metadata=custom or {})
        return new_ledger(next(self.ids), options, BOOKIES, created_ms=self.now_ms, creator_token=1, secret=secret)

    def plain_ledger(
        self, entries: int = 10, *, closed: bool = True, custom: dict[str, bytes] | None = None
    ) -> CommittedLedger:
        """A ledger that belongs to no job."""
        metadata = self.new_metadata(custom)
        metadata = metadata.closed_at(entries - 1, entries * 100) if closed else metadata
        self.store.create(self.znodes.ledger(metadata.ledger_id), metadata.encode(), make_parents=True)
        return CommittedLedger(metadata.ledger_id, entries - 1, entries * 100, entries)

    def job_ledger(self, job: WriteJob, entries: int = 10, logs: LogStore | None = None) -> CommittedLedger:
        """A ledger as a task of the job makes it: created with the job's operations, then closed."""
        return self.close_ledger(self.open_ledger(job, logs), entries)

    def open_ledger(self, job: WriteJob, logs: LogStore | None = None) -> int:
        """A ledger of the job that is not closed yet."""
        logs = logs or self.logs
        secret = logs.jobs.ensure(job)
        metadata = self.new_metadata(job.ledger_tags(), secret and secret.secret)
        path = self.znodes.ledger(metadata.ledger_id)
        self.store.ensure_path(path.rsplit("/", 1)[0])
        changes = logs.jobs.creation_of_ledger(job, metadata.ledger_id, secret)
        self.store.transaction([Create(path, metadata.encode(), secret.readers if secret else ()), *changes])
        return metadata.ledger_id

    def ledger_exists(self, ledger: CommittedLedger) -> bool:
        return self.store.get_many([self.znodes.ledger(ledger.ledger_id)]) != [None]

    def metadata(self, ledger: CommittedLedger) -> LedgerMetadata:
        value = self.store.get(self.znodes.ledger(ledger.ledger_id)).value
        return LedgerMetadata.decode(ledger.ledger_id, value)

    def listed(self, name: str, version: int | None = None) -> list[int]:
        return [one.ledger_id for one in self.logs.reader.snapshot(name, version).ledgers]


@pytest.fixture
def world() -> LogWorld:
    """On the store in memory."""
    tree = MemoryTree(lambda: 5)
    MemoryStore(tree).ensure_path("/ledgers")
    return LogWorld(lambda: MemoryStore(tree), Znodes("/ledgers"))
