"""A cluster that is nothing but znodes on a real ZooKeeper: registrations, cookies and ledgers, made by hand."""

from __future__ import annotations

import time
from collections.abc import Callable

from bk_spark.config import DEFAULT_RACK, LedgerOptions
from bk_spark.metadata.ledger_metadata import new_ledger
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, register, unregister
from bk_spark.metadata.store import Create
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore

DEADLINE_S = 60.0
"""How long a test waits for what must come."""

BOOKIES = ("b1", "b2", "b3", "b4")


class ClusterOfZnodes:
    """Its bookies are registered by ``store``, and go when told."""

    def __init__(self, store: ZooKeeperStore, znodes: Znodes) -> None:
        self.store, self.znodes = store, znodes
        self.marks = UnderReplication(store, znodes)
        initialise_cluster(store, znodes)
        for bookie_id in BOOKIES:
            store.create(znodes.cookie(bookie_id))
            self.come(bookie_id)

    def come(self, bookie_id: str, *, read_only: bool = False, rack: str = DEFAULT_RACK) -> None:
        register(self.store, self.znodes, BookieAddress(bookie_id, "127.0.0.1", 1, rack), read_only=read_only)

    def go(self, bookie_id: str) -> None:
        unregister(self.store, self.znodes, bookie_id)

    def create_ledgers(self, ensembles: dict[int, tuple[str, ...]]) -> None:
        """Empty and closed ones."""
        paths = {ledger_id: self.znodes.ledger(ledger_id) for ledger_id in ensembles}
        for directory in sorted({path.rsplit("/", 1)[0] for path in paths.values()}):
            self.store.ensure_path(directory)
        operations = [Create(paths[ledger_id], _metadata(ledger_id, ensemble)) for ledger_id, ensemble in ensembles.items()]
        for start in range(0, len(operations), 500):
            self.store.transaction(operations[start : start + 500])

    def marked(self) -> dict[int, tuple[str, ...]]:
        return {mark.ledger_id: mark.missing for mark in self.marks.marks()}


def _metadata(ledger_id: int, ensemble: tuple[str, ...]) -> bytes:
    options = LedgerOptions(ensemble_size=len(ensemble), write_quorum=len(ensemble), ack_quorum=1)
    return new_ledger(ledger_id, options, ensemble, created_ms=0, creator_token=0).closed_at(-1, 0).encode()


def eventually(is_so: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition; fails when the deadline passes."""
    deadline = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
