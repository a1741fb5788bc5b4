"""A world of logs whose metadata store has a clock of its own, apart from the clients'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.orphans import Orphan, OrphanKind, Orphans
from bk_spark.log.cleanup.vacuum import LogVacuum, VacuumReport
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, Retention
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.log.log_world import LogWorld

DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S


class Died(Exception):
    """The process of this session was killed."""


class AgedWorld(LogWorld):
    """``store_ms`` is the metadata store's clock, ``now_ms`` the clients'."""

    def __init__(self) -> None:
        self.store_ms = 1_800_000_000_000
        tree = MemoryTree(lambda: self.store_ms)
        MemoryStore(tree).ensure_path("/ledgers")
        super().__init__(lambda: MemoryStore(tree), Znodes("/ledgers"), now_ms=1_800_000_000_000)

    def pass_s(self, seconds: float) -> None:
        """Time goes on, on all clocks."""
        self.store_ms += int(seconds * 1000)
        self.now_ms += int(seconds * 1000)

    def write(
        self, name: str, count: int = 1, kind: CommitKind = CommitKind.APPEND, remove: tuple[int, ...] = (), entries: int = 10
    ) -> list[CommittedLedger]:
        """One commit of new ledgers of entries, cleared of what it leaves."""
        job = self.logs.jobs.begin(name)
        ledgers = [self.job_ledger(job, entries) for _ in range(count)]
        self.logs.commit(job, CommitRequest(kind, tuple(ledgers), remove=remove))
        self.logs.jobs.finish(job, [one.ledger_id for one in ledgers])
        return ledgers

    def dying_session(self, calls: int) -> MetadataStore:
        """A session whose process dies instead of making its call number ``calls``, changes only."""
        session = self.new_session()
        left = [calls]

        def dies(real: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    raise Died
                left[0] -= 1
                return real(*arguments, **options)

            return call

        for name in ("transaction", "delete", "set", "create", "ensure_path"):
            setattr(session, name, dies(getattr(session, name)))
        return session


def vacuum(world: LogWorld, name: str = "orders", store: MetadataStore | None = None, **more: Any) -> VacuumReport:
    store = store or world.store
    logs = world.logs if store is world.store else world.log_store(store)
    return LogVacuum(logs, **more).run(name)


def keep(world: LogWorld, name: str = "orders", **retention: int) -> None:
    world.logs.set_retention(name, world.logs.names.uid(name), Retention(**retention))


def ids(ledgers: Sequence[CommittedLedger]) -> tuple[int, ...]:
    return tuple(one.ledger_id for one in ledgers)


def present(world: LogWorld, ledgers: Sequence[CommittedLedger]) -> list[bool]:
    return [world.ledger_exists(one) for one in ledgers]


def head(world: LogWorld, name: str = "orders") -> Head:
    return world.logs.names.head(name, world.logs.names.uid(name))


def find(world: LogWorld, older_than_s: int = DAY_S) -> list[Orphan]:
    return list(Orphans(world.logs).find(older_than_s))


def sweep(world: LogWorld, older_than_s: int = DAY_S, store: MetadataStore | None = None) -> list[Orphan]:
    store = store or world.store
    return list(Orphans(world.log_store(store)).sweep(older_than_s))


def kinds(orphans: Sequence[Orphan]) -> list[OrphanKind]:
    return [one.kind for one in orphans]


def append(*ledgers: CommittedLedger, **more: Any) -> CommitRequest:
    return CommitRequest(CommitKind.APPEND, ledgers, **more)
