"""Stops all changes of a bookie after one of them failed.

A failed write, sync or commit leaves unknown what the disk holds. The bookie then takes nothing more until it is started
again, which finds out; it denies nothing either, for what was written may be found by that start. Reads go on.

Ref: docs/rules.md, storage rule 6, situations 58 and 75.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bk_spark.errors import StorageError

if TYPE_CHECKING:
    from threading import Condition


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
