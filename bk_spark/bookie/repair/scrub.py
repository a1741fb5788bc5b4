"""The scrub: everything stored is read and verified from time to time, and what is damaged is repaired from the others.

Disks change bits, and lose sectors, in data that nobody reads for years; while the other copies are whole that does no harm.
A run verifies the index, then reads every record that it names, at a limited rate. Whoever else finds damage reports it
(``report``) and it is repaired at once.

``threading`` is here, against the import table, for the one thread that does all of this.

Ref: docs/rules.md, storage rules 2 and 3, protocol rule 39.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from bk_spark.bookie.index.rows import BatchRow
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks, RateLimiter
from bk_spark.bookie.repair.damaged_rows import MAX_DAMAGED, PAGE_ROWS, DamagedRows
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError

FIRST_RUN = 0.1
"""Part of the interval after which a started bookie is scrubbed first: one that is often restarted is scrubbed, too."""

RETRY_S = 600.0
"""When damage that could not be repaired is tried again: bookies that are away come back within that time, or not soon."""

CHECKPOINT_WAIT_S = 60.0
"""How long a repair waits for its checkpoint; if it takes longer the damaged rows go after a later one."""

INDEX_ROW_BYTES = 128
"""About what the index holds for one row: its check is paid for at the same rate."""

STOP_S = 5.0
"""How long a stop waits for what is under way: a copy from another bookie may take longer, and finds the bookie closed."""

LOOK_S = 0.2
"""Between two looks whether the checkpoint has come."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """For operators."""

    is_running: bool = False
    runs: int = 0
    """Complete ones since the start."""
    rows_checked: int = 0
    """Of the run under way, or of the last one."""
    bytes_checked: int = 0
    damaged: int = 0
    """Rows, which each stand for a batch, known to be damaged and not replaced yet."""
    repaired: int = 0
    """Rows since the start."""
    last_run_ms: int = 0
    """When the last run ended, since 1970; 0 if there was none since the start."""
    last_error: str = ""
    """What is wrong with the index, or why damage could not be repaired; empty if nothing is."""

    def figures(self) -> dict[str, int]:
        return {name: int(value) for name, value in asdict(self).items() if name != "last_error"}


class Scrubber:
    """``run`` is one scrub, ``mend`` one repair; ``start`` has a thread do both when they are due."""

    def __init__(
        self, storage: LedgerStorage, repair: LedgerRepair | None, config: BookieConfig, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        self._storage = storage
        self._damaged = DamagedRows(storage, repair)
        self._interval_s = config.scrub_interval_s
        self._clocks = clocks
        self._wake: queue.Queue[BatchRow | None] = queue.Queue(MAX_DAMAGED)
        self._stopping = threading.Event()
        self._limiter = RateLimiter(config.scrub_bytes_per_s, clocks.steady_s, self._stopping.wait)
        self._is_forced = threading.Event()
        self._status = ScrubStatus()
        self._thread = threading.Thread(target=self._serve, name="scrub", daemon=True)

    # --- any thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits a short while for what is under way. To be called after ``start``."""
        self._stopping.set()
        self._look()
        self._thread.join(STOP_S)

    def force(self) -> None:
        """Have a run begin now; if one is under way, another one after it."""
        self._is_forced.set()
        self._look()

    def report(self, rows: Sequence[BatchRow]) -> None:
        """Rows of the index that may be damaged. Those for which there is no room are found by the next run."""
        for row in rows:
            self._look(row)

    def status(self) -> ScrubStatus:
        return self._status

    # --- the thread

    def run(self) -> None:
        """Read and verify everything once, and repair. Raises BookKeeperError where the index does not let it go on."""
        self._note(is_running=True, rows_checked=0, bytes_checked=0, last_error="")
        try:
            if self._check_index() and self._check_rows():
                self.mend()
                self._note(runs=self._status.runs + 1, last_run_ms=self._clocks.wall_ms())
        finally:
            self._note(is_running=False)

    def mend(self) -> None:
        """Repair what is known to be damaged, as far as that is possible now."""
        if not len(self._damaged):
            return
        self._damaged.copy()
        self._storage.request_checkpoint()
        deadline = self._clocks.steady_s() + CHECKPOINT_WAIT_S
        while not self._damaged.remove_replaced() and self._clocks.steady_s() < deadline and not self._stopping.wait(LOOK_S):
            pass
        self._note(damaged=len(self._damaged), repaired=self._damaged.repaired, last_error=self._damaged.last_error)

    # --- inside

    def _check_index(self) -> bool:
        """False if the bookie stops."""
        for rows in self._storage.check_index():
            self._limiter.take(rows * INDEX_ROW_BYTES)
            if self._stopping.is_set():
                return False
        return True

    def _check_rows(self) -> bool:
        after = (-1, -1, -1)
        while page := self._storage.rows_from(after, PAGE_ROWS):
            for row in page:
                self._limiter.take(row.size_bytes)
                if self._stopping.is_set():
                    return False
                self._check(row)
                self._note(
                    rows_checked=self._status.rows_checked + 1, bytes_checked=self._status.bytes_checked + row.size_bytes
                )
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)
        return True

    def _check(self, row: BatchRow) -> None:
        if self._damaged.check(row):
            return
        place = (row.first_entry_id, row.last_entry_id, row.ledger_id)
        logger.error("entries %d to %d of ledger %d are damaged here: they are to be repaired from the other bookies", *place)
        self._note(damaged=len(self._damaged))
        if self._damaged.is_full:
            self.mend()

    def _look(self, row: BatchRow | None = None) -> None:
        with suppress(queue.Full):  # then the thread has something to look at, and runs find what is not in the queue
            self._wake.put_nowait(row)

    def _note(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]

    def _serve(self) -> None:
        due_s = self._clocks.steady_s() + FIRST_RUN * self._interval_s
        while not self._stopping.is_set():
            self._wait_until(due_s)
            is_due = self._is_forced.is_set() or self._clocks.steady_s() >= due_s
            try:
                if is_due and not self._stopping.is_set():
                    self._is_forced.clear()
                    due_s = self._clocks.steady_s() + self._interval_s
                    self.run()
                else:
                    self.mend()
            except BookKeeperError as problem:
                logger.error("the scrub cannot go on: %s", problem)
                self._note(last_error=str(problem))
            except Exception as problem:  # nothing would be verified or repaired any more, and nothing would tell
                logger.exception("the scrub failed")
                self._note(last_error=f"{type(problem).__name__}: {problem}")

    def _wait_until(self, due_s: float) -> None:
        """Until then, or until there is something to look at; what was reported is checked."""
        wait_s = max(0.0, due_s - self._clocks.steady_s())
        with suppress(queue.Empty):
            row = self._wake.get(timeout=min(wait_s, RETRY_S) if len(self._damaged) else wait_s)
            while not self._stopping.is_set():
                if row is not None:
                    self._check(row)
                row = self._wake.get_nowait()
