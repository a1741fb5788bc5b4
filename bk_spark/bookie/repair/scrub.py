"""The scrub: from time to time it reads and verifies everything stored, and repairs damage from the other bookies.

Disks flip bits and lose sectors, also in data that nobody reads for years. That does no harm while the other copies are
intact. A run verifies the index, then reads every record that the index names, at a limited rate. Other parts of the bookie
that find damage, reads of clients among them, pass it to ``report``, and it is repaired at once. What only the write cache
names is first checkpointed.

Ref: docs/rules.md, storage rules 2 and 3, protocol rule 39.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks, RateLimiter
from bk_spark.bookie.progress import Interval, mib, share
from bk_spark.bookie.repair.damaged_batches import MAX_DAMAGED, PAGE_BATCHES, DamagedBatches
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError

FIRST_RUN = 0.1
"""The first run begins after this part of the interval, so that a bookie that restarts often is scrubbed, too."""

RETRY_S = 600.0
"""Between two tries to repair damage: bookies that are away come back within that time, or not soon."""

CHECKPOINT_WAIT_S = 60.0
"""How long a run or a repair waits for a checkpoint; what takes longer is left to a later run."""

INDEX_ROW_BYTES = 128
"""About the size of one row in the index: the rate limit counts the check of the index by it."""

STOP_S = 5.0
"""How long a stop waits for work under way. A copy from another bookie may take longer; it finds the bookie closed then."""

LOOK_S = 0.2
"""Between two looks whether the checkpoint has come."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScrubStatus(TaskStatus):
    """``last_error``: what is wrong with the index, or why damage could not be repaired."""

    is_running: bool = False
    runs: int = 0
    """Complete ones since the start."""
    rows_checked: int = 0
    """By the run under way, or by the last one."""
    bytes_checked: int = 0
    total_bytes: int = 0
    """What was stored when the run began: more may have come, and some may be gone."""
    damaged: int = 0
    """Stored batches known to be damaged and not replaced yet."""
    repaired: int = 0
    """Stored batches since the start."""
    last_run_ms: int = 0
    """When the last run ended, since 1970; 0 if none has ended since the start."""


class Scrubber(BackgroundTask[ScrubStatus]):
    """``run`` is one scrub, ``mend`` one repair; the thread does both when they are due."""

    def __init__(
        self, storage: LedgerStorage, repair: LedgerRepair | None, config: BookieConfig, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        super().__init__("scrub", ScrubStatus(), stop_s=STOP_S)
        self._storage = storage
        self._damaged = DamagedBatches(storage, repair)
        self._interval_s = config.scrub_interval_s
        self._clocks = clocks
        self._limiter = RateLimiter(config.scrub_bytes_per_s, clocks.steady_s, self._pause)
        self._line = Interval(clocks.steady_s)
        self._is_forced = False
        self._reported: list[StoredBatch] = []
        """At most MAX_DAMAGED."""

    def force(self) -> None:
        """Begin a run now, or after the one under way."""
        with self._changed:
            self._is_forced = True
            self._changed.notify_all()

    def report(self, batches: Sequence[StoredBatch]) -> None:
        """Stored batches that may be damaged. Any thread may call it.

        Stored batches that are known already are dropped: a client may read them again and again while their repair waits for
        other bookies. Stored batches beyond MAX_DAMAGED are dropped, too: the next run finds them.
        """
        with self._changed:
            for stored in batches:
                if len(self._reported) < MAX_DAMAGED and not self._damaged.knows(stored) and stored not in self._reported:
                    self._reported.append(stored)
            self._changed.notify_all()

    def run(self) -> None:
        """Read and verify everything once, and repair. On the thread. Raises BookKeeperError if the index cannot be read."""
        total_bytes = sum(log.live_bytes for log in self._storage.entry_logs())
        self._note(is_running=True, rows_checked=0, bytes_checked=0, total_bytes=total_bytes, last_error="")
        self._line.begin()
        logger.info("the scrub begins to read what is stored, %s", mib(total_bytes))
        try:
            self._await_index(self._storage.log_files.sequences.next_sequence)
            if self._check_index() and self._check_batches():
                self.mend()
                self._note(runs=self._status.runs + 1, last_run_ms=self._clocks.wall_ms())
                self._tell("has ended")
        finally:
            self._note(is_running=False)

    def mend(self) -> None:
        """Repair the known damage as far as that is possible now. On the thread."""
        if not len(self._damaged):
            return
        self._damaged.copy()
        self._storage.request_checkpoint()
        deadline = self._clocks.steady_s() + CHECKPOINT_WAIT_S
        while not self._damaged.remove_replaced() and self._clocks.steady_s() < deadline and not self._pause(LOOK_S):
            pass
        self._note(damaged=len(self._damaged), repaired=self._damaged.repaired, last_error=self._damaged.last_error)

    def _await_index(self, sequence: int) -> bool:
        """Have everything below ``sequence`` checkpointed: damage is looked for, and replaced, in the index alone.

        False if the checkpoint does not come in time, or the bookie stops.
        """
        if self._storage.is_indexed(sequence):
            return True
        self._storage.request_checkpoint()
        deadline_s = self._clocks.steady_s() + CHECKPOINT_WAIT_S
        while not self._storage.is_indexed(sequence) and self._clocks.steady_s() < deadline_s and not self._pause(LOOK_S):
            pass
        return self._storage.is_indexed(sequence)

    def _check_index(self) -> bool:
        """False if the bookie stops."""
        for rows in self._storage.check_index():
            self._limiter.take(rows * INDEX_ROW_BYTES)
            if self._is_stopped:
                return False
        return True

    def _check_batches(self) -> bool:
        """False if the bookie stops."""
        after = (-1, -1, -1)
        while page := self._storage.batches_from(after, PAGE_BATCHES):
            for stored in page:
                self._limiter.take(stored.size_bytes)
                if self._is_stopped:
                    return False
                self._check(stored)
                self._note(
                    rows_checked=self._status.rows_checked + 1, bytes_checked=self._status.bytes_checked + stored.size_bytes
                )
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)
            if self._line.is_due():
                self._tell("goes on")
        return True

    def _tell(self, what: str) -> None:
        done = self._status
        read = f"{mib(done.bytes_checked)} of {mib(done.total_bytes)}{share(done.bytes_checked, done.total_bytes)}"
        logger.info("the scrub %s: %s are read, %d batches are known to be damaged", what, read, done.damaged)

    def _check(self, stored: StoredBatch) -> None:
        if self._damaged.check(stored):
            return
        place = (stored.first_entry_id, stored.last_entry_id, stored.ledger_id)
        logger.error("entries %d to %d of ledger %d are damaged here: they are to be repaired from the other bookies", *place)
        self._note(damaged=len(self._damaged))
        if self._damaged.is_full:
            self.mend()

    def _serve(self) -> None:
        due_s = self._clocks.steady_s() + FIRST_RUN * self._interval_s
        while not self._is_stopped:
            try:
                self._check_reported(due_s)
                is_due = self._is_forced or self._clocks.steady_s() >= due_s
                if is_due and not self._is_stopped:
                    self._is_forced = False
                    due_s = self._clocks.steady_s() + self._interval_s
                    self.run()
                elif not self._is_stopped:
                    self.mend()
            except BookKeeperError as problem:
                logger.error("the scrub cannot go on: %s", problem)
                self._note(last_error=str(problem))
            except Exception as problem:  # without the thread nothing would be verified any more, and nobody would notice
                logger.exception("the scrub failed")
                self._note(last_error=f"{type(problem).__name__}: {problem}")

    def _check_reported(self, due_s: float) -> None:
        """Wait until ``due_s``, or until something is to do before; check the batches that were reported."""
        wait_s = max(0.0, due_s - self._clocks.steady_s())
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or self._is_forced or self._reported,
                min(wait_s, RETRY_S) if len(self._damaged) else wait_s,
            )
            reported, self._reported = self._reported, []
        if reported and not self._await_index(1 + max(stored.sequence for stored in reported)):
            self.report(reported)  # not in the index does not mean whole
            return
        for stored in reported:
            if self._is_stopped:
                return
            self._check(stored)
