"""Audits of all ledgers: of their metadata, to mark those that name lost bookies, or whose copies could be in more racks; or of
their replicas, to mark damage.

An audit goes through the ledgers in pages, by ascending id. One that marks begins with the ledgers that named a lost bookie at
the last audit: among millions, copies then begin at once. Before it marks the ledgers of a page it asks again which bookies are
lost. So a bookie that came back is left out, and an auditor that lost its office, or was told to stop, marks nothing more.

``asyncio``: several ledgers are checked at once, on the client's event loop.

Ref: docs/rules.md, protocol rules 44 and 54, situations 76, 78, 81 and 82.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.check_replicas import ReplicasChecked
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.errors import BookKeeperError, MetadataUnavailableError, NoSuchLedgerError
from bk_spark.metadata.ledger_ids import PAGE, ledger_pages
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.copy_moves import is_in_few_racks
from bk_spark.replication.known_ledgers import KnownLedgers
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.lost_bookies import missing_of

PARALLEL_CHECKS = 8
"""Ledgers that are checked at once. Small ledgers cost round trips, not bytes; one rate limits the bytes of all."""

Lost = Callable[[], frozenset[str] | None]
"""Returns the bookies that are lost now; None ends the audit. May block on the metadata store."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Audited:
    """The result of an audit of all ledgers' metadata."""

    ledgers: int = 0
    marked: int = 0
    """Ledgers that name a lost bookie, including those that were marked before."""
    unreadable: int = 0
    """Ledgers whose metadata cannot be decoded: which bookies they need is not known."""
    named: set[str] = field(default_factory=set)
    """All bookies that ledgers name."""
    in_few_racks: int = 0
    """Ledgers whose copies could be in more racks or zones than they are."""
    to_move: int = 0
    """Those of them that were marked, so that their copies move."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class RackAudit:
    """Asks an audit to find the ledgers in too few racks."""

    racks: RackMap
    max_moves: int
    """How many of them are marked at most."""


@dataclass(slots=True)
class AllChecked:
    """Sums over the checks of all ledgers' replicas. Entries are counted as in ReplicasChecked."""

    ledgers: int = 0
    entries: int = 0
    nbytes: int = 0
    lacking_ledgers: int = 0
    """Ledgers of which a bookie that is not lost lacks entries: they were marked."""
    unknown_ledgers: int = 0
    """Ledgers of which some replicas could not be checked."""
    without_replica: int = 0
    below_ack_quorum: int = 0
    below_write_quorum: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    """Bookie → how many entries it lacks, at least."""
    after: int = -1
    """The last ledger that was checked: a cancelled check continues after it."""

    def add(self, checked: ReplicasChecked, lost: frozenset[str]) -> None:
        self.ledgers += 1
        self.entries += checked.entries
        self.nbytes += checked.nbytes
        self.lacking_ledgers += bool(set(checked.lacking) - lost)
        self.unknown_ledgers += bool(checked.unknown)
        self.without_replica += checked.without_replica
        self.below_ack_quorum += checked.below_ack_quorum
        self.below_write_quorum += checked.below_write_quorum
        self.lacking.update(checked.lacking)

    def to_json(self) -> dict[str, object]:
        sums = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "after"}
        return {**sums, "lacking": dict(self.lacking)}


class LedgerAudit:
    """Audits the ledgers of one cluster. Both audits raise MetadataUnavailableError; marks made before that stay."""

    def __init__(self, context: ClientContext, marks: UnderReplication) -> None:
        self._context = context
        self._ledgers = LedgerStore(context.store, context.znodes)
        self._marks = marks
        self._known = KnownLedgers()
        """Those of the last complete audit."""

    def mark_lost(self, lost: Lost, racks: RackAudit | None = None) -> Audited:
        """Mark every ledger that names a lost bookie, and some of those that ``racks`` asks for. Blocks."""
        audited, known = Audited(), KnownLedgers()
        marked = self._mark_known(lost)
        if marked is None:
            return audited
        audited.marked = len(marked)
        for page in self._pages():
            existing = [one for one in self._ledgers.readable(page) if one is not None]
            readable = [one for one in existing if isinstance(one, LedgerMetadata)]
            audited.ledgers += len(existing)
            audited.unreadable += len(existing) - len(readable)
            audited.named.update(*(one.bookies for one in readable))
            known.note(readable)
            now_lost = lost()
            if now_lost is None:
                return audited
            self.mark_page([one for one in readable if one.ledger_id not in marked], now_lost, audited, racks)
        audited.is_complete = True
        self._known = known
        return audited

    def _mark_known(self, lost: Lost) -> set[int] | None:
        """Mark the ledgers that named a lost bookie at the last audit, and still do.

        Returns their ids; None if ``lost`` ended it.

        During an audit the lost bookies become only fewer, so it needs no other mark of these ledgers.
        """
        now_lost = lost()
        if now_lost is None:
            return None
        ledger_ids, marked = self._known.naming(now_lost), set[int]()
        for start in range(0, len(ledger_ids), PAGE):
            found = self._ledgers.readable(ledger_ids[start : start + PAGE])
            now_lost = lost()
            if now_lost is None:
                return None
            marked |= self._mark_missing([one for one in found if isinstance(one, LedgerMetadata)], now_lost)
        return marked

    def mark_page(
        self, ledgers: list[LedgerMetadata], lost: frozenset[str], audited: Audited, racks: RackAudit | None = None
    ) -> None:
        """Mark those of ``ledgers`` that name a bookie of ``lost``, and some that ``racks`` asks for; count them. Blocks."""
        missing = self._mark_missing(ledgers, lost)
        audited.marked += len(missing)
        if racks is not None:
            self._mark_for_racks(racks, [one for one in ledgers if one.ledger_id not in missing], audited)

    def _mark_missing(self, ledgers: list[LedgerMetadata], lost: frozenset[str]) -> set[int]:
        """Mark those that name a bookie of ``lost``. Returns their ids."""
        missing = {one.ledger_id: gone for one in ledgers if (gone := missing_of(one, lost))}
        if missing:
            self._marks.mark_many(missing)
        return set(missing)

    def _mark_for_racks(self, audit: RackAudit, ledgers: list[LedgerMetadata], audited: Audited) -> None:
        """Copies that are missing come first: while a bookie is lost the ledgers in too few racks are only counted."""
        found = [one.ledger_id for one in ledgers if is_in_few_racks(one, audit.racks)]
        to_move = found[: audit.max_moves - audited.to_move]
        if to_move:
            self._marks.mark_many(dict.fromkeys(to_move, ()))
        audited.in_few_racks += len(found)
        audited.to_move += len(to_move)

    async def check_all(self, check: LedgerCheck, lost: Lost, totals: AllChecked) -> bool:
        """Read the replicas of all ledgers after ``totals.after``, mark what is lacking, and add the results to ``totals``.

        Runs on the event loop. Returns False if ``lost`` ended it. After that, or after an error, call it again with the same
        ``totals`` to continue.
        """
        pages = self._pages(totals.after)
        while page := await self._context.blocking(lambda: next(pages, None)):
            for start in range(0, len(page), PARALLEL_CHECKS):
                ledger_ids = page[start : start + PARALLEL_CHECKS]
                now_lost = await self._context.blocking(lost)
                if now_lost is None:
                    return False
                for checked in await asyncio.gather(*(self._check_and_mark(check, one, now_lost) for one in ledger_ids)):
                    if checked is not None:
                        totals.add(checked, now_lost)
                totals.after = ledger_ids[-1]
        return True

    async def _check_and_mark(self, check: LedgerCheck, ledger_id: int, lost: frozenset[str]) -> ReplicasChecked | None:
        """None if the ledger does not exist any more or could not be checked."""
        try:
            checked = await check.check(ledger_id, lost=lost)
            damaged = sorted(set(checked.lacking) - lost)
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
        return checked

    def _pages(self, after: int = -1) -> Iterator[list[int]]:
        return ledger_pages(self._context.store, self._context.znodes, after)
