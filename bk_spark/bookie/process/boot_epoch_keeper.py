"""Moves the boot epoch of a running bookie, and ends its acknowledgements before a promise is broken that rests on it.

identity/boot_epoch.py has the steps of a move and the promise. Here is its time: an epoch begins with its first step, the next
one is due ``epoch_interval_s`` later, and ``epoch_timeout_s`` after the beginning of the last epoch that is known to be in the
metadata store the bookie **lapses**. A lapsed bookie takes no add, fence or other change, of a recovery neither, and registers
as read-only; reads go on. It takes changes again with the next move that succeeds.

So an outage of the metadata store shorter than ``epoch_timeout_s - epoch_interval_s`` stops no writer. After a longer one the
writers of open ledgers fail, which could not have replaced a bookie or closed their ledgers either.

The bookie asks the clock for each change, and once more after each sync: the process may have stood still, or the sync stalled.

If another process has taken the bookie, this one ends: both would answer under one id, and each lacks what the other took.

Ref: docs/rules.md, storage rule 9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.identity.boot import Boot, MetadataPlace
from bk_spark.bookie.identity.boot_epoch import move_boot_epoch
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError, MetadataConflictError

RETRY_S = 1.0
"""Between two tries to move the epoch. A metadata store that comes back is noticed within this time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BootEpochStatus(TaskStatus):
    """``last_error`` is that of the last try to move the epoch, "" after one that succeeded."""

    began_s: float = 0.0
    """When the epoch began that is known to be in the metadata store, by the steady clock."""
    is_taken: bool = False
    """Whether another process has taken the bookie."""


class BootEpochKeeper(BackgroundTask[BootEpochStatus]):
    """Keeps the boot epoch moving, on a thread of its own: ``turn`` once, then ``on_failure`` and ``start``.

    ``stop`` waits for a try under way.
    """

    def __init__(
        self, boot: Boot, metadata: MetadataPlace, config: BookieConfig, began_s: float, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        """``began_s`` is the steady clock's time before the boot took its first step: its first epoch began then."""
        super().__init__("epoch", BootEpochStatus(began_s=began_s))
        self._boot = boot
        self._metadata = metadata
        self._interval_s = config.epoch_interval_s
        self._timeout_s = config.epoch_timeout_s
        self._now_s = clocks.steady_s
        self._next_began_s: float | None = None
        """When the epoch began that is not known to be in the metadata store yet."""
        self._fail: Callable[[BaseException], None]
        self._is_told = False
        """Whether the program's log says that the bookie is lapsed."""

    def on_failure(self, fail: Callable[[BaseException], None]) -> None:
        """Have ``fail`` called, on this thread, with the error that ends it."""
        self._fail = fail

    def age_s(self) -> float:
        """How long ago the epoch began that is known to be in the metadata store."""
        return self._now_s() - self.status().began_s

    def lapse(self) -> str:
        """Why the bookie must acknowledge nothing now; "" if it may. Any thread, without waiting."""
        status = self._status  # frozen, and replaced as a whole
        if status.is_taken:
            return status.last_error
        if self._now_s() - status.began_s < self._timeout_s:
            return ""
        cause = status.last_error or "the next try is under way"
        return f"its epoch in the metadata store has not moved for {self._timeout_s:g} s (epoch_timeout_s): {cause}"

    def look(self) -> None:
        """Log it when the bookie has lapsed, and when it takes changes again. On the sync thread, now and then."""
        lapse = self.lapse()
        if bool(lapse) != self._is_told:
            what = f"takes no changes and serves reads alone: {lapse}" if lapse else "takes changes again: its epoch has moved"
            logger.log(logging.ERROR if lapse else logging.WARNING, "bookie %s %s", self._boot.bookie_id, what)
        self._is_told = bool(lapse)

    def turn(self) -> float:
        """Move the boot epoch if that is due. Returns after how many seconds to call this again. One thread at a time.

        Raises MetadataConflictError if another process has taken the bookie: then it is lapsed for good.
        """
        now_s = self._now_s()
        due_s = self.status().began_s + self._interval_s
        if now_s < due_s:
            return due_s - now_s
        if self._next_began_s is None:
            self._next_began_s = now_s
        try:
            move_boot_epoch(self._boot, self._metadata)
        except MetadataConflictError as problem:
            self._note(last_error=str(problem), is_taken=True)
            raise
        except BookKeeperError as problem:
            if not self.status().last_error:
                logger.warning("bookie %s cannot move its epoch, it tries again: %s", self._boot.bookie_id, problem)
            self._note(last_error=str(problem))
            return RETRY_S
        self._note(last_error="", began_s=self._next_began_s)
        self._next_began_s = None
        return 0.0

    def _serve(self) -> None:
        try:
            while not self._pause(self.turn()):
                pass
        except BaseException as problem:
            self._fail(problem)
