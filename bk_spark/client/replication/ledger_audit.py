"""A look at all ledgers: at their metadata, to mark those that name lost bookies; or at their replicas, to mark the damaged.

Ledgers are looked at in pages, ascending. Before each page of marks is made it is asked again who is lost: an auditor that is
none any more, or that was told to stop, marks nothing, and a bookie that is back is left out.

``asyncio``: several ledgers are checked at once, on the client's event loop.

Ref: docs/rules.md, protocol rules 44 and 54, situations 76, 78, 81 and 82.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.replication.ledger_check import CheckScope, LedgerCheck, LedgerReport
from bk_spark.client.replication.lost_bookies import bookies_of, missing_of
from bk_spark.errors import BookKeeperError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.under_replication import UnderReplication

PARALLEL_CHECKS = 8
"""Ledgers that are checked at once: of small ones the check waits for round trips, and their bytes have one rate."""

Lost = Callable[[], frozenset[str] | None]
"""The bookies that are lost now; None if the audit is to end here. May wait for the metadata store."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Audited:
    """What a look at all ledgers' metadata showed."""

    ledgers: int = 0
    marked: int = 0
    """Ledgers that name a lost bookie; what was marked before is counted, too."""
    unreadable: int = 0
    """Ledgers whose metadata is no metadata: nothing can be said of them."""
    named: set[str] = field(default_factory=set)
    """All bookies that ledgers name."""
    is_complete: bool = False


@dataclass(slots=True)
class AllChecked:
    """What a check of all ledgers' replicas showed. Entries are counted as in LedgerReport."""

    ledgers: int = 0
    entries: int = 0
    nbytes: int = 0
    lacking_ledgers: int = 0
    """Ledgers of which a bookie that is there lacks entries: they were marked."""
    unknown_ledgers: int = 0
    """Ledgers of which not everything could be learnt."""
    without_replica: int = 0
    below_ack_quorum: int = 0
    below_write_quorum: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    """Bookies, and how many entries each one lacks, at least."""
    after: int = -1
    """The last ledger that was checked: where a check that was cut off goes on."""

    def add(self, report: LedgerReport, lost: frozenset[str]) -> None:
        self.ledgers += 1
        self.entries += report.entries
        self.nbytes += report.nbytes
        self.lacking_ledgers += bool(set(report.lacking) - lost)
        self.unknown_ledgers += bool(report.unknown)
        self.without_replica += report.without_replica
        self.below_ack_quorum += report.below_ack_quorum
        self.below_write_quorum += report.below_write_quorum
        self.lacking.update(report.lacking)

    def to_json(self) -> dict[str, object]:
        counts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "after"}
        return {**counts, "lacking": dict(self.lacking)}


class LedgerAudit:
    """Looks at the ledgers of one cluster. All raise MetadataUnavailableError; what was marked before stays marked."""

    def __init__(self, context: ClientContext, marks: UnderReplication) -> None:
        self._context = context
        self._ledgers = LedgerStore(context.store, context.znodes)
        self._marks = marks

    def mark_lost(self, lost: Lost) -> Audited:
        """Mark every ledger that names a lost bookie; waits."""
        audited = Audited()
        for page in self._pages():
            known = [one for one in self._ledgers.readable(page) if one is not None]
            readable = [one for one in known if isinstance(one, LedgerMetadata)]
            audited.ledgers += len(known)
            audited.unreadable += len(known) - len(readable)
            audited.named.update(*map(bookies_of, readable))
            now_lost = lost()
            if now_lost is None:
                return audited
            missing = {one.ledger_id: gone for one in readable if (gone := missing_of(one, now_lost))}
            if missing:
                self._marks.mark_many(missing)
            audited.marked += len(missing)
        audited.is_complete = True
        return audited

    async def check_all(self, check: LedgerCheck, lost: Lost, totals: AllChecked) -> bool:
        """Read all replicas of the ledgers behind ``totals.after``, on the event loop, mark what is lacking, and add it all up.

        False if it was ended early. After that, or an error, it goes on with the same totals.
        """
        pages = self._pages(totals.after)
        while page := await self._context.blocking(lambda: next(pages, None)):
            for some in _slices(page, PARALLEL_CHECKS):
                now_lost = await self._context.blocking(lost)
                if now_lost is None:
                    return False
                for report in await asyncio.gather(*(self._checked(check, one, now_lost) for one in some)):
                    if report is not None:
                        totals.add(report, now_lost)
                totals.after = some[-1]
        return True

    async def _checked(self, check: LedgerCheck, ledger_id: int, lost: frozenset[str]) -> LedgerReport | None:
        """Check one ledger, and mark it. None for one that is gone or could not be checked."""
        try:
            report = await check.checked(ledger_id, CheckScope(lost=lost))
            damaged = sorted(set(report.lacking) - lost)
            if damaged:
                logger.warning("ledger %d: entries are damaged or missing on %s", ledger_id, ", ".join(damaged))
                await self._context.blocking(lambda: self._marks.mark(ledger_id, damaged))
        except NoSuchLedgerError:
            return None
        except MetadataUnavailableError:
            raise
        except BookKeeperError as problem:
            logger.warning("ledger %d could not be checked: %s", ledger_id, problem)
            return None
        return report

    def _pages(self, after: int = -1) -> Iterator[list[int]]:
        return ledger_pages(self._context.store, self._context.znodes, after)


def _slices(ledger_ids: list[int], size: int) -> Iterator[list[int]]:
    rest = iter(ledger_ids)
    while some := list(itertools.islice(rest, size)):
        yield some
