"""Phase two of a start after a possible loss of data: brings ledger after ledger out of limbo, while the bookie serves.

Phase one ended before the bookie began to serve: every ledger up to the fence watermark is in limbo (admission.py). Phase two
*settles* each of them, in the order of their ids: it fences the ledger and copies what its metadata says belongs here
(ledger_repair.py). Progress is stored in the index page by page: a clean restart goes on there, another loss begins anew.

The metadata is listed and read after a ``sync``, and after this limbo began, so it shows all that was promised before. A ledger
created after the listing got its first entry later still: nothing of it can have been lost.

A ledger that cannot be settled now, because a replica or its quorum is away, stays in limbo, by its id, and is tried again.
At most MAX_UNSETTLED ids are kept; above that the next pages wait. Limbo denies nothing, so that is slow but never wrong.

Helper threads settle several ledgers at a time, because most of the time they wait for other bookies. They are daemons: a
recovery under way has timeouts of its own, and may outlast the stop.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, storage rules 8 and 11, protocol rules 50 and 51, situation 72.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.index.values import MAX_UNSETTLED
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks
from bk_spark.bookie.progress import Interval, mib
from bk_spark.bookie.repair.ledger_repair import Copied, LedgerRepair
from bk_spark.errors import BookKeeperError, ConfigError, State
from bk_spark.metadata.ledger_metadata import LedgerMetadata

PAGE_LEDGERS = 100
"""Ledgers whose metadata is read at once, each of 512 KiB at most. Progress is stored after each page."""

HELPERS = 4
"""Ledgers repaired at a time: one may wait for its recovery while others are copied. Each may hold one read-ahead."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries: a bookie's restart takes seconds, a machine's return minutes."""

STOP_S = 5.0
"""How long a stop waits for work under way; later the work finds the bookie closed and gives up."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LimboRepairStatus(TaskStatus):
    """Counts are since this start of the bookie. ``last_error``: why one or all ledgers were not settled at the last try."""

    is_running: bool = False
    settled: int = 0
    """Ledgers."""
    unsettled: int = 0
    """Ledgers that were tried and are still in limbo."""
    copied_entries: int = 0
    copied_bytes: int = 0


class LimboRepair(BackgroundTask[LimboRepairStatus]):
    """Brings a bookie's ledgers out of limbo. ``round`` tries every ledger once; the thread repeats it until limbo is over."""

    def __init__(self, bookie: Bookie, repair: LedgerRepair, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        super().__init__("limbo repair", LimboRepairStatus(), stop_s=STOP_S)
        self._bookie = bookie
        self._repair = repair
        self._line = Interval(clocks.steady_s)
        self._waits_for: dict[int, str] = {}
        """Ledgers that were tried and are still in limbo, with the reason. Guarded by ``_changed``."""

    def start(self) -> None:
        """Does nothing if there is no limbo."""
        if self._bookie.limbo is not None:
            self._note(is_running=True)
            super().start()

    def round(self) -> bool:
        """Try to settle every ledger in limbo; end early if too many cannot be settled. True once limbo is over.

        Raises BookKeeperError if the metadata cannot be read or progress cannot be stored: the next round goes on from there.
        """
        limbo = self._bookie.limbo
        if limbo is None:
            return True
        if self._bookie.ids_above:  # ledgers without metadata may be in a newer copy of the store
            self._note(last_error=self._bookie.ids_above)
            return False
        through, unsettled = limbo.settled_through, self._unsettled_of(sorted(limbo.unsettled))
        self._note(unsettled=len(unsettled))
        for page in self._pages(through, limbo.fence_watermark):
            unsettled |= self._unsettled_of(page)
            if self._is_stopped or len(unsettled) > MAX_UNSETTLED:
                self._note(unsettled=len(unsettled))
                return False
            through = page[-1] if len(page) == PAGE_LEDGERS else limbo.fence_watermark
            with self._changed:  # an operator settles, too
                self._bookie.admission.settle_through(through, frozenset(unsettled))
                self._note(unsettled=len(unsettled))
        if unsettled:
            return False
        with self._changed:
            self._bookie.admission.end_limbo()
        return True

    def waits_for(self) -> dict[int, str]:
        """Why the ledgers that were tried are still in limbo, by id."""
        with self._changed:
            return dict(self._waits_for)

    def give_up(self, ledger_id: int) -> None:
        """End the limbo of a ledger though entries of it may be missing here: an operator's way out if it would never end.

        The ledger is fenced first, if it has metadata: a fence that was promised may be lost. From then on this bookie denies
        what it lost. Raises ConfigError unless limbo waits for this ledger, and BookKeeperError if it cannot be fenced.
        """
        limbo = self._bookie.limbo
        if limbo is None or ledger_id not in limbo.unsettled:
            raise ConfigError(f"ledger {ledger_id}", State("not in limbo"), "'bk-spark bookie limbo BOOKIE_ID' shows what is")
        self._repair.fence_only(ledger_id)
        with self._changed:
            self._bookie.admission.settle(ledger_id)
            self._waits_for.pop(ledger_id, None)
        logger.warning("an operator ended the limbo of ledger %d: what was lost of it here is denied from now on", ledger_id)

    def _pages(self, through: int, watermark: int) -> Iterator[list[int]]:
        """The ids above ``through`` up to ``watermark``. The last page is not full, and may be empty."""
        if through >= watermark:
            return
        below = itertools.takewhile(lambda ledger_id: ledger_id <= watermark, self._repair.peers.ledger_ids())
        ids = (ledger_id for ledger_id in below if ledger_id > through)
        while len(page := list(itertools.islice(ids, PAGE_LEDGERS))) == PAGE_LEDGERS:
            yield page
        yield page

    def _unsettled_of(self, ledger_ids: Sequence[int]) -> set[int]:
        """Try to settle each ledger. Returns those that are still in limbo."""
        left = set(ledger_ids)
        for start in range(0, len(ledger_ids), PAGE_LEDGERS):
            page = ledger_ids[start : start + PAGE_LEDGERS]
            left -= self._settled_of(zip(page, self._repair.peers.metadata(page), strict=True))
        return left

    def _settled_of(self, work: Iterator[tuple[int, LedgerMetadata | BookKeeperError | None]]) -> set[int]:
        """Have the helpers settle ledgers until all of ``work`` is done or the bookie stops. Returns those that are settled."""
        settled: set[int] = set()

        def help_on() -> None:
            while True:
                with self._changed:
                    item = None if self._is_stopped else next(work, None)
                if item is None:
                    return
                if self._settle(*item):
                    settled.add(item[0])

        helpers = [threading.Thread(target=help_on, name=f"limbo-repair-{number}", daemon=True) for number in range(HELPERS)]
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        return settled

    def _settle(self, ledger_id: int, metadata: LedgerMetadata | BookKeeperError | None) -> bool:
        """True once nothing of the ledger is missing here."""
        try:
            if isinstance(metadata, BookKeeperError):
                raise metadata
            if metadata is not None:
                self._repair.settle(metadata, self._copied)
            with self._changed:  # helpers settle one at a time
                self._bookie.admission.settle(ledger_id)
                self._waits_for.pop(ledger_id, None)
                self._note(settled=self._status.settled + 1)
                self._tell()
        except BookKeeperError as problem:
            with self._changed:
                if len(self._waits_for) < MAX_UNSETTLED or ledger_id in self._waits_for:
                    self._waits_for[ledger_id] = str(problem)
                self._note(last_error=f"ledger {ledger_id}: {problem}")
            return False
        return True

    def _copied(self, copied: Copied) -> None:
        with self._changed:  # helpers copy at the same time
            entries, nbytes = self._status.copied_entries + copied.entries, self._status.copied_bytes + copied.nbytes
            self._note(copied_entries=entries, copied_bytes=nbytes)
            self._tell()

    def _tell(self) -> None:
        """With ``_changed``: a line now and then. One ledger may take hours."""
        limbo = self._bookie.limbo
        if limbo is not None and self._line.is_due():
            done = self._status
            logger.info(
                "limbo: %d ledgers are settled and %d wait, %d ids are left; %d entries (%s) were copied from other bookies",
                *(done.settled, done.unsettled, limbo.ids, done.copied_entries, mib(done.copied_bytes)),
            )

    def _serve(self) -> None:
        pause_s, settled = FIRST_PAUSE_S, 0
        while not self._is_over():
            logger.warning("ledgers stay in limbo until the next try in %g s: %s", pause_s, self.status())
            if self._pause(pause_s):
                break
            has_come_on, settled = self.status().settled > settled, self.status().settled
            pause_s = FIRST_PAUSE_S if has_come_on else min(2 * pause_s, LONGEST_PAUSE_S)
        self._note(is_running=False)
        logger.info("the repair after a possible loss of data ends: %s", self.status())

    def _is_over(self) -> bool:
        """One round; an error counts as not over."""
        self._note(last_error="")
        try:
            return self.round()
        except BookKeeperError as problem:
            self._note(last_error=str(problem))
            return False
        except Exception as problem:  # without the thread the bookie would stay in limbo for ever, and nobody would notice
            logger.exception("the repair after a possible loss of data failed")
            self._note(last_error=f"{type(problem).__name__}: {problem}")
            return False
