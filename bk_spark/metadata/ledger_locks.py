"""Apache BookKeeper's locks on ledgers: an ephemeral znode for each ledger whose copies somebody works on.

A ledger has at most one lock. Its value carries a random token, by which a ``LedgerLocks`` recognises its own locks, including
one whose creation was never answered.

An expired session takes its locks along, so a worker must ask ``holds_lock`` before a change that could harm others. Even a
worker that froze after asking, while another one did the work, does no harm: marking is idempotent, a ledger's metadata is only
changed by compare-and-set, and copies made twice are merely one copy too many.

Threads may share a ``LedgerLocks``; each ledger's lock is then held by one of them.

Ref: Apache BookKeeper's ZkLedgerUnderreplicationManager; docs/rules.md, protocol rule 45, situation 83; docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid

from bk_spark.errors import CorruptionError
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
    find_children,
)
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import LockDataFormat

_LOCK = re.compile(r"urL(\d{10,})")
_TOKEN = re.compile(r" #[0-9a-f]{32}$")


class LedgerLocks:
    """The locks that one process takes. All methods raise MetadataUnavailableError, and may then be repeated."""

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._token = uuid.uuid4().hex
        self._mutex = threading.Lock()
        self._held: set[int] = set()
        """Ledgers whose lock this object took and did not release. An expired session may have removed a lock since."""

    def try_lock(self, ledger_id: int, owner: str) -> bool:
        """Take the ledger's lock. False if somebody holds it, including another thread of this object.

        ``owner`` is shown to people. The lock goes with the session: see ``holds_lock``.
        """
        with self._mutex:
            if ledger_id in self._held:
                return False
            path = self._znodes.under_replicated_lock(ledger_id)
            value = to_text(LockDataFormat(bookieId=f"{owner} #{self._token}"))
            try:
                self._store.create(path, value, ephemeral=True, make_parents=True)
            except NodeExistsError:
                if self._own(path) is None:
                    return False
                # An earlier call created it, or failed to delete it, and never got the answer.
            self._held.add(ledger_id)
            return True

    def unlock(self, ledger_id: int) -> None:
        """Release the lock. Does nothing if it is not held, or is somebody else's by now.

        If the store does not answer the lock may stay; ``try_lock`` of this object then takes it over.
        """
        path = self._znodes.under_replicated_lock(ledger_id)
        with self._mutex:
            self._held.discard(ledger_id)
            found = self._own(path)
            if found is not None:
                with contextlib.suppress(NoNodeError, BadVersionError):
                    self._store.delete(path, found.version)

    def holds_lock(self, ledger_id: int) -> bool:
        """Ask the store whether the lock that ``try_lock`` took still exists."""
        path = self._znodes.under_replicated_lock(ledger_id)
        self._store.sync(path)
        return self._own(path) is not None

    def locked_ids(self) -> set[int]:
        """The locked ledgers of the whole cluster. No lock is read: one request, and a name for each."""
        names = find_children(self._store, self._znodes.under_replicated_locks)
        return {int(name[3:]) for name in names if _LOCK.fullmatch(name)}

    def locks(self) -> dict[int, str]:
        """The locked ledgers of the whole cluster, with the owners of their locks."""
        directory = self._znodes.under_replicated_locks
        names = [name for name in find_children(self._store, directory) if _LOCK.fullmatch(name)]
        found = self._store.get_many([f"{directory}/{name}" for name in names])
        return {int(name[3:]): _owner(value) for name, value in zip(names, found, strict=True) if value is not None}

    def _own(self, path: str) -> Versioned | None:
        """The lock, if it is this object's."""
        try:
            found = self._store.get(path)
        except NoNodeError:
            return None
        return found if found.value.rstrip().endswith(f'#{self._token}"'.encode()) else None


def _owner(value: Versioned) -> str:
    """The owner in a lock's value, or the whole value if it is in another format."""
    try:
        return _TOKEN.sub("", from_text(value.value, LockDataFormat(), "a lock").bookieId)
    except CorruptionError:
        return value.value.decode(errors="replace")
