"""Phase two of a start after a possible loss of data: ledger after ledger out of limbo, while the bookie serves.

Phase one is over before the bookie serves: every ledger up to the fence watermark is in limbo (admission.py). Here each of
them, in the order of the ids, is *settled*: fenced and made whole as its metadata asks for (ledger_repair.py). Progress is
stored in the index a page at a time, so that a clean restart goes on there; after another loss it begins anew.

The metadata is listed and read after a ``sync``, and after this limbo began: it shows all that was promised before. A ledger
that is made known only after it was listed got its first entry later still: nothing of it can have been lost.

What cannot be settled now, because a replica or the quorum of a ledger is away, stays in limbo, by its id, and is tried again;
of those at most MAX_UNSETTLED, above that the pages behind them wait. Limbo denies nothing: that is slow, never wrong.

``threading`` is here, against the import table, for the thread that goes through the ledgers and its helpers: most of the
time they wait for other bookies. They are daemons, because a recovery under way may outlast the stop by its own patience.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, storage rules 8 and 11, protocol rules 50 and 51, situation 72.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.index.rows import MAX_UNSETTLED
from bk_spark.bookie.repair.ledger_repair import Copied, LedgerRepair
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

PAGE_LEDGERS = 100
"""Ledgers whose metadata is read at once, each of 512 KiB at most, and after which progress is stored."""

HELPERS = 4
"""Ledgers repaired at a time: one may wait for its recovery while others are copied. Each may hold one read-ahead."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries: a bookie's restart takes seconds, a machine's return minutes."""

STOP_S = 5.0
"""How long a stop waits for what is under way; later it finds the bookie closed and gives up."""

logger = logging.getLogger(__name__)

_Item = tuple[int, LedgerMetadata | BookKeeperError | None]
"""A ledger's id and what Peers.metadata says of it."""


@dataclass(frozen=True, slots=True)
class IntegrityStatus:
    """For operators. Counts are of this life of the bookie, and of ledgers if they do not say what."""

    is_running: bool = False
    settled: int = 0
    unsettled: int = 0
    """Tried, and still in limbo."""
    copied_entries: int = 0
    copied_bytes: int = 0
    last_error: str = ""
    """Why a ledger, or all of them, could not be settled at the last try; empty if the last try of each succeeded."""

    def figures(self) -> dict[str, int]:
        return {name: int(value) for name, value in asdict(self).items() if name != "last_error"}


class Integrity:
    """Phase two of one bookie. ``round`` is one step of it; ``start`` has a thread take them until limbo is over."""

    def __init__(self, bookie: Bookie, repair: LedgerRepair) -> None:
        self._bookie = bookie
        self._repair = repair
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._status = IntegrityStatus()
        self._thread = threading.Thread(target=self._run, name="integrity", daemon=True)

    def start(self) -> None:
        """Does nothing where there is no limbo."""
        if self._bookie.limbo is not None:
            self._note(is_running=True)
            self._thread.start()

    def stop(self) -> None:
        """Waits a short while for what is under way. What was settled stays so."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def status(self) -> IntegrityStatus:
        with self._lock:
            return self._status

    def round(self) -> bool:
        """Try to settle every ledger that is in limbo, up to where too many could not be. True once limbo is over.

        Raises BookKeeperError where the metadata cannot be had or progress cannot be stored: the next round goes on.
        """
        limbo = self._bookie.limbo
        if limbo is None:
            return True
        through, unsettled = limbo.settled_through, self._unsettled_of(sorted(limbo.unsettled))
        self._note(unsettled=len(unsettled))
        for page in self._pages(through, limbo.fence_watermark):
            unsettled |= self._unsettled_of(page)
            if self._stopping.is_set() or len(unsettled) > MAX_UNSETTLED:
                self._note(unsettled=len(unsettled))
                return False
            through = page[-1] if len(page) == PAGE_LEDGERS else limbo.fence_watermark
            self._bookie.settle_through(through, frozenset(unsettled))
            self._note(unsettled=len(unsettled))
        if unsettled:
            return False
        self._bookie.end_limbo()
        return True

    def _pages(self, through: int, watermark: int) -> Iterator[list[int]]:
        """The ids above ``through`` up to ``watermark``; the last page is not full, it may be empty."""
        if through >= watermark:
            return
        below = itertools.takewhile(lambda one: one <= watermark, self._repair.peers.ledger_ids())
        ids = (one for one in below if one > through)
        while len(page := list(itertools.islice(ids, PAGE_LEDGERS))) == PAGE_LEDGERS:
            yield page
        yield page

    def _unsettled_of(self, ledger_ids: Sequence[int]) -> set[int]:
        """Try to settle each; gives back those that are not."""
        left = set(ledger_ids)
        for start in range(0, len(ledger_ids), PAGE_LEDGERS):
            page = ledger_ids[start : start + PAGE_LEDGERS]
            left -= self._settled_of(zip(page, self._repair.peers.metadata(page), strict=True))
        return left

    def _settled_of(self, work: Iterator[_Item]) -> set[int]:
        """What the helpers could settle until the work, or the bookie, came to its end."""
        settled: set[int] = set()

        def help_on() -> None:
            while (item := self._next(work)) is not None:
                if self._settle(*item):
                    settled.add(item[0])

        helpers = [threading.Thread(target=help_on, name=f"integrity-{one}", daemon=True) for one in range(HELPERS)]
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        return settled

    def _next(self, work: Iterator[_Item]) -> _Item | None:
        with self._lock:
            return None if self._stopping.is_set() else next(work, None)

    def _settle(self, ledger_id: int, metadata: LedgerMetadata | BookKeeperError | None) -> bool:
        """Whether nothing is missing of the ledger any more."""
        try:
            if isinstance(metadata, BookKeeperError):
                raise metadata
            copied = Copied() if metadata is None else self._repair.settle(metadata)
            self._settled(ledger_id, copied)
        except BookKeeperError as problem:
            self._note(last_error=f"ledger {ledger_id}: {problem}")
            return False
        return True

    def _settled(self, ledger_id: int, copied: Copied) -> None:
        with self._lock:
            self._bookie.settle(ledger_id)
            one = self._status
            entries, nbytes = one.copied_entries + copied.entries, one.copied_bytes + copied.nbytes
            self._status = replace(one, settled=one.settled + 1, copied_entries=entries, copied_bytes=nbytes)

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._status = replace(self._status, **changes)  # type: ignore[arg-type]

    # --- the thread

    def _run(self) -> None:
        pause_s, settled = FIRST_PAUSE_S, 0
        while not self._is_over():
            logger.warning("ledgers stay in limbo until the next try in %g s: %s", pause_s, self.status())
            if self._stopping.wait(pause_s):
                break
            has_come_on, settled = self.status().settled > settled, self.status().settled
            pause_s = FIRST_PAUSE_S if has_come_on else min(2 * pause_s, LONGEST_PAUSE_S)
        self._note(is_running=False)
        logger.info("the repair after a possible loss of data ends: %s", self.status())

    def _is_over(self) -> bool:
        """Take a round."""
        self._note(last_error="")
        try:
            return self.round()
        except BookKeeperError as problem:
            self._note(last_error=str(problem))
            return False
        except Exception as problem:  # the bookie would stay in limbo for ever, and nothing would tell
            logger.exception("the repair after a possible loss of data failed")
            self._note(last_error=f"{type(problem).__name__}: {problem}")
            return False
