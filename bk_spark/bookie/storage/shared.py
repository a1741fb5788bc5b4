"""What the threads of a bookie's storage share: the log files, the cache layers, the index with its lock, and the change gate.

The condition ``changed`` guards the cache layers. It is notified whenever a thread that waits for the disk should look again.
The index takes one caller at a time: the sync thread, the checkpoint's, readers, garbage collection and the scrub take turns,
so every caller asks for little. A thread that needs both locks takes that of the index first.

Ref: docs/rules.md, storage rules 3, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Lock

from bk_spark.bookie.index.ledger_index import LedgerIndex
from bk_spark.bookie.log_files.all_log_files import LogFiles
from bk_spark.bookie.storage.write_cache import CacheLayers
from bk_spark.config import BookieConfig
from bk_spark.errors import CorruptionError, NotOpenedError, StorageError


class ChangeGate:
    """Stops all changes of a bookie after one of them failed.

    After a failed write, sync or commit nobody knows what the disk holds. The bookie takes no more changes until it is started
    again, which finds out. It denies nothing either, for that start may find what was written. Reads go on. ``changed`` is
    notified of a failure; its lock guards nothing here.

    NotOpenedError is no such failure: everything is as it was before the change, which can be made later.

    Ref: docs/rules.md, storage rules 6 and 17, situations 58 and 75.
    """

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self.failure: BaseException | None = None
        """The first failure of a change."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Any error inside, except NotOpenedError, ends all changes. Raises StorageError if an earlier change failed."""
        self.check()
        try:
            yield
        except NotOpenedError:
            raise
        except BaseException as problem:
            with self._changed:
                self.failure = self.failure or problem
                self._changed.notify_all()
            raise

    def check(self) -> None:
        """Raise StorageError if a change failed before."""
        if self.failure is not None:
            raise StorageError("writing", f"this bookie takes no more until it is started again, after: {self._reason}")

    def check_denial(self) -> None:
        """Raise StorageError if nothing may be denied: a failed write may have left records that the next start finds."""
        if self.failure is not None:
            raise StorageError("denying", f"what the disk holds is unknown, after: {self._reason}")

    @property
    def _reason(self) -> str:
        return str(self.failure) or repr(self.failure)  # an assertion may have no text


class LockedIndex:
    """The index for all threads, one caller at a time."""

    def __init__(self, index: LedgerIndex, gate: ChangeGate) -> None:
        self._index = index
        self._lock = Lock()
        self._gate = gate

    @contextmanager
    def reading(self) -> Iterator[LedgerIndex]:
        """Use the index without changing it."""
        with self._lock:
            yield self._index

    @contextmanager
    def changing(self) -> Iterator[LedgerIndex]:
        """Change the index. An error of the disk ends all changes, for only a new start finds out what the disk holds then.

        Damage that a change meets does not end all changes: the transaction is rolled back.
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
class SharedStorage:
    """What the sync thread, the checkpoint's and the readers work on."""

    index: LockedIndex
    log_files: LogFiles
    layers: CacheLayers
    gate: ChangeGate
    changed: Condition
    config: BookieConfig
