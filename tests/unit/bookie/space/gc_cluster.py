"""A metadata store with followers that lag, and ledgers that are said to be stored: what decisions of the collector rest on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace

from bk_spark.bookie.index.values import DELETED, FENCED, NO_TALLY, LedgerSummary, Limbo
from bk_spark.bookie.log_files.mark import KnownEntryLog
from bk_spark.bookie.log_files.writer import SequenceCounter
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.storage.stored_ledgers import LedgerFacts
from bk_spark.config import LedgerOptions
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.ledger_ids import raise_ledger_ids
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import Versioned
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

BOOKIE_ID = "bookie-1"
OTHERS = ("bookie-2", "bookie-3", "bookie-4")
ZNODES = Znodes("/ledgers")


class LaggingStore(MemoryStore):
    """A session whose server shows an old state of the tree until it is synced. Changes go through the leader."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.leader = MemoryStore(tree)
        self.follower: MemoryStore | None = None
        self.calls: list[str] = []
        self.failing: str | None = None
        """What no answer comes to: children, get_many or sync."""
        self.fails_after = 0
        """So many calls of it still get their answer."""
        self.after_listing: Callable[[], None] = lambda: None
        """Happens behind the back of whoever has just listed ledgers."""

    def lag(self) -> None:
        """From now on, show what is there now."""
        tree = MemoryTree(self._tree.clock_ms)
        tree.nodes = copy.deepcopy({path: replace(node, owner=None) for path, node in self._tree.nodes.items()})
        self.follower = MemoryStore(tree)

    def sync(self, path: str) -> None:
        self._answer("sync")
        self.calls.append("sync")
        self.follower = None

    def get(self, path: str) -> Versioned:
        return self.follower.get(path) if self.follower else super().get(path)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self._answer("get_many")
        self.calls.append("read")
        return self.follower.get_many(paths) if self.follower else super().get_many(paths)

    def children(self, path: str) -> list[str]:
        if not path.startswith(f"{ZNODES.root}/0"):
            return super().children(path)
        self._answer("children")
        self.calls.append("list")
        try:
            return self.follower.children(path) if self.follower else super().children(path)
        finally:
            self.after_listing()

    def _answer(self, call: str) -> None:
        if self.failing == call:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise MetadataUnavailableError(self.uri, "no answer")


class StoredSummaries:
    """Stands in for the storage: ledgers, each as one summary."""

    def __init__(self) -> None:
        self.by_id: dict[int, LedgerSummary] = {}
        self.limbo: Limbo | None = None
        self.log_files = SimpleNamespace(sequences=SequenceCounter(1))
        self.open_logs: list[KnownEntryLog] = []
        self.refuses = False
        self.deletions: list[tuple[int, int]] = []
        self.purged: list[int] = []

    def put(self, *ledger_ids: int, batches: int = 1) -> None:
        for ledger_id in ledger_ids:
            self.by_id[ledger_id] = LedgerSummary(ledger_id, batches, NO_TALLY, 1, 0, -1, bytes(24))

    def ledgers(self, after: int, limit: int) -> list[LedgerSummary]:
        return [self.by_id[one] for one in sorted(self.by_id) if one > after][:limit]

    def highest_issued_id(self, others: Collection[int] = ()) -> int:
        return max((one for one in self.by_id if one not in others), default=-1)

    def facts(self, ledger_id: int) -> LedgerFacts:
        return LedgerFacts(bytes(24), -1, False, False)

    def purge(self, ledger_ids: Sequence[int]) -> None:
        self.purged += ledger_ids
        for ledger_id in ledger_ids:
            del self.by_id[ledger_id]

    def delete(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool:
        if self.refuses:
            return False
        self.deletions.append((ledger_id, deleted_ms))
        tombstone = replace(self.by_id[ledger_id], batch_count=0, flags=FENCED | DELETED, deleted_ms=deleted_ms)
        self.by_id[ledger_id] = tombstone
        return True

    def entry_logs(self) -> list[KnownEntryLog]:
        return self.open_logs

    def is_indexed(self, sequence: int) -> bool:
        return True

    @property
    def deleted(self) -> list[int]:
        return [ledger_id for ledger_id, _ in self.deletions]


class GcCluster:
    """One bookie's view of a cluster, and the steps of a test."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.store = LaggingStore(MemoryTree(lambda: self.now_ms))
        initialise_cluster(self.store, ZNODES)
        raise_ledger_ids(self.store.leader, ZNODES, 100)
        self.storage = StoredSummaries()
        self.damaged: list[object] = []
        self.local = LocalLedgers(
            self.storage,  # type: ignore[arg-type]
            self.storage.delete,
            lambda: 1 << 40,
            self.damaged.extend,
        )
        self.cluster = ClusterMember.of(self.store, ZNODES, BOOKIE_ID)

    def create(self, *ledger_ids: int, ensemble: tuple[str, ...] = (BOOKIE_ID, *OTHERS[:2])) -> None:
        """Metadata of open ledgers."""
        for ledger_id in ledger_ids:
            self.write(new_ledger(ledger_id, LedgerOptions(), ensemble, created_ms=0, creator_token=1))

    def write(self, metadata: LedgerMetadata) -> None:
        path = ZNODES.ledger(metadata.ledger_id)
        found = self.store.leader.get_many([path])[0]
        if found is None:
            self.store.leader.create(path, metadata.encode(), make_parents=True)
        else:
            self.store.leader.set(path, metadata.encode(), found.version)

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return LedgerMetadata.decode(ledger_id, self.store.leader.get(ZNODES.ledger(ledger_id)).value)

    def close(self, ledger_id: int, last: int = 9) -> None:
        self.write(self.metadata(ledger_id).closed_at(last, 100))

    def remove(self, *ledger_ids: int) -> None:
        """Somebody deletes the ledgers."""
        for ledger_id in ledger_ids:
            self.store.leader.delete(ZNODES.ledger(ledger_id))
