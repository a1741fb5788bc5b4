"""What the threads of a bookie's storage share: the logs, the cache layers, the index and the lock around it.

``changed`` guards the layers and is notified whenever one who waits for the disk should look again. The index answers one
caller at a time; the sync thread, the checkpoint's, readers, garbage collection and the scrub take turns, so what is asked of
it is small. Who needs both locks takes that of the index first.

Ref: docs/rules.md, storage rules 3, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bk_spark.bookie.index.ledger_index import LedgerIndex
from bk_spark.bookie.logs.all_logs import Logs
from bk_spark.bookie.storage.write_cache import CacheLayers
from bk_spark.config import BookieConfig
from bk_spark.errors import CorruptionError

if TYPE_CHECKING:
    from threading import Condition, Lock
from typing import TYPE_CHECKING

from bk_spark.errors import StorageError

if TYPE_CHECKING:
    from threading import Condition

# --- Stops all changes of a bookie after one of them failed
#
# A failed write, sync or commit leaves unknown what the disk holds. The bookie then takes nothing more until it is started
# again, which finds out; it denies nothing either, for what was written may be found by that start. Reads go on.
#
# Ref: docs/rules.md, storage rule 6, situations 58 and 75.


class ChangeGate:
    """Open until a change fails, closed ever after. ``changed`` is notified then; its lock guards nothing here."""

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self.failure: BaseException | None = None
        """The first failure of a change."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Whatever goes wrong inside is the end of all changes. Raises StorageError if that came before."""
        self.check()
        try:
            yield
        except BaseException as problem:
            with self._changed:
                self.failure = self.failure or problem
                self._changed.notify_all()
            raise

    def check(self) -> None:
        """Raise StorageError if a change failed before."""
        if self.failure is not None:
            raise StorageError("writing", f"this bookie takes no more until it is started again, after: {self.failure}")

    def check_denial(self) -> None:
        """Raise StorageError if nothing may be denied: a failed write may have left records that the next start finds."""
        if self.failure is not None:
            raise StorageError("denying", f"what the disk holds is unknown, after: {self.failure}")


class LockedIndex:
    """An index for all threads."""

    def __init__(self, index: LedgerIndex, lock: Lock, gate: ChangeGate) -> None:
        self._index = index
        self._lock = lock
        self._gate = gate

    @contextmanager
    def reading(self) -> Iterator[LedgerIndex]:
        """The index, for one caller."""
        with self._lock:
            yield self._index

    @contextmanager
    def changing(self) -> Iterator[LedgerIndex]:
        """The index, for one caller, to change it. An error of the disk is the end of all changes.

        Which state the disk then has is known only when the index is opened again. Damage that is met on the way is not: a
        transaction that meets it is rolled back.
        """
        with self._lock:
            damage = None
            with self._gate.changing():
                try:
                    yield self._index
                except CorruptionError as problem:
                    damage = problem
            if damage is not None:
                raise damage


@dataclass(frozen=True, slots=True)
class StorageParts:
    index: LockedIndex
    logs: Logs
    layers: CacheLayers
    gate: ChangeGate
    changed: Condition
    config: BookieConfig
