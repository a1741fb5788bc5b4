"""Who works on the copies of which ledger: Apache BookKeeper's locks, an ephemeral znode for each ledger that is worked on.

A lock goes with the session of who holds it, and one ledger has at most one. Its value carries a random token, by which a
``LedgerLocks`` tells its own from all others, also one whose creation it never got an answer to.

A session that expired takes its locks along, and whoever worked under one must ask ``holds`` before a change that others
could be harmed by. Marking is idempotent; a ledger's metadata is only ever changed by compare-and-set; copies that two made are
one copy too many: so even a worker that stood still from its last question until after somebody else's work does no harm.

``threading``: threads may share a ``LedgerLocks``, and each ledger's lock is then held by one of them.

Ref: Apache BookKeeper's ZkLedgerUnderreplicationManager; docs/rules.md, protocol rule 45, situation 83; docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid

from bk_spark.errors import CorruptionError
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import MetadataStore, NodeExistsError, NoNodeError, Versioned
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import LockDataFormat

_LOCK = re.compile(r"urL(\d{10,})")
_TOKEN = re.compile(r" #[0-9a-f]{32}$")


class LedgerLocks:
    """The locks that one process takes. All raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._token = uuid.uuid4().hex
        self._mutex = threading.Lock()
        self._held: set[int] = set()
        """Ledgers whose lock this object took and did not give back: their locks may have gone with a session since."""

    def try_lock(self, ledger_id: int, owner: str) -> bool:
        """Take the ledger's lock. False if somebody holds it, another thread of this object included.

        ``owner`` is for people who look who works.
        """
        with self._mutex:
            if ledger_id in self._held:
                return False
            path = self._znodes.under_replicated_lock(ledger_id)
            value = to_text(LockDataFormat(bookieId=f"{owner} #{self._token}"))
            try:
                self._store.create(path, value, ephemeral=True, make_parents=True)
            except NodeExistsError:
                if not self._is_own(path):
                    return False
                # An earlier call made it, or failed to release it, and never got the answer.
            self._held.add(ledger_id)
            return True

    def unlock(self, ledger_id: int) -> None:
        """Give the lock back; nothing if it is not held, or somebody else's by now.

        Where the store does not answer it may stay: ``try_lock`` of this object then takes it up.
        """
        path = self._znodes.under_replicated_lock(ledger_id)
        with self._mutex:
            self._held.discard(ledger_id)
            if self._is_own(path):
                with contextlib.suppress(NoNodeError):
                    self._store.delete(path)

    def holds(self, ledger_id: int) -> bool:
        """Whether the lock that ``try_lock`` took is still there; the store is asked."""
        path = self._znodes.under_replicated_lock(ledger_id)
        self._store.sync(path)
        return self._is_own(path)

    def owners(self) -> dict[int, str]:
        """Who works on which ledgers now, in the whole cluster."""
        try:
            names = [name for name in self._store.children(self._znodes.under_replicated_locks) if _LOCK.fullmatch(name)]
        except NoNodeError:
            return {}
        found = self._store.get_many([f"{self._znodes.under_replicated_locks}/{name}" for name in names])
        return {int(name[3:]): _owner(value) for name, value in zip(names, found, strict=True) if value is not None}

    def _is_own(self, path: str) -> bool:
        try:
            return self._store.get(path).value.rstrip().endswith(f'#{self._token}"'.encode())
        except NoNodeError:
            return False


def _owner(value: Versioned) -> str:
    """Who holds a lock; as it stands, where somebody else wrote something else."""
    try:
        return _TOKEN.sub("", from_text(value.value, LockDataFormat(), "a lock").bookieId)
    except CorruptionError:
        return value.value.decode(errors="replace")
