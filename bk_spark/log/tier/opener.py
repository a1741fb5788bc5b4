"""Opens the ledgers of one log to read them: from bookies, or from the log's tier where bookies do not have them any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.errors import CorruptionError, NoSuchLedgerError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_places import TieredPlace
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.rows.parts import whole_payloads
from bk_spark.rows.reading import Converter

ReadableLedger: TypeAlias = ReadHandle | TieredHandle


@dataclass(frozen=True, slots=True)
class LogLedgerOpener:
    """Opens ledgers of the log ``name`` with the uid ``uid``; None for ledgers of no log, which are in no tier."""

    logs: LogStore
    name: str
    uid: str | None
    on_bookies: Callable[[int], ReadHandle]
    """Opens a ledger of bookies. Raises NoSuchLedgerError."""
    places: Mapping[int, TieredPlace] = field(default_factory=dict)
    """Of ledgers that bookies need not be asked for."""

    def knowing(self, mark: TierMark | None, ledger_ids: Collection[int]) -> LogLedgerOpener:
        """With the places of those ledgers that may be gone from bookies."""
        if self.uid is None:
            return self
        return replace(self, places=self.logs.reader.tier.released(self.name, self.uid, mark, ledger_ids))

    def __call__(self, ledger_id: int) -> ReadableLedger:
        """Raises NoSuchLedgerError where neither has it; otherwise as ``on_bookies``."""
        if ledger_id in self.places:
            return self._handle(self.places[ledger_id])
        try:
            return self.on_bookies(ledger_id)
        except NoSuchLedgerError:
            return self.tiered(ledger_id)

    def rows(
        self, ledger: ReadableLedger, first: int, last: int, asked: AskedRows, convert: Converter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that stand or begin in entries ``first`` to ``last``, also if the ledger leaves bookies meanwhile.

        ``convert`` is ``asked.of_entries()``: one that serves many ledgers knows their schema by then. Entries of a ledger on
        bookies must be known to be confirmed.
        """
        if isinstance(ledger, TieredHandle):
            on_bookies = partial(self.rows, first=first, last=last, asked=asked)
            yield from self._from_files(ledger, lambda one: one.rows(first, last, asked), on_bookies)
            return
        convert, behind = convert or asked.of_entries(), first
        try:
            # Whoever planned the read saw the entries confirmed; the bookies that are asked now may not know of that yet.
            for payloads in whole_payloads(ledger.read_unconfirmed, ledger.ledger_id, first, last):
                yield from convert(ledger.ledger_id, payloads)
                behind = payloads.column("entry_id")[-1].as_py() + 1
        except NoSuchLedgerError:
            yield from self.tiered(ledger.ledger_id).rows(behind, last, asked)

    def entries(self, ledger: ReadableLedger, first: int, last: int, convert: Converter) -> Iterator[pa.RecordBatch]:
        """What ``convert`` gives of the entries ``first`` to ``last`` of a log of entries, as ``rows``."""
        behind = first
        if not isinstance(ledger, TieredHandle):
            try:
                for entries in ledger.read_unconfirmed(first, last):
                    yield from convert(ledger.ledger_id, entries)
                    behind = entries.column("entry_id")[-1].as_py() + 1
                return
            except NoSuchLedgerError:
                ledger = self.tiered(ledger.ledger_id)
        for entries in self._from_files(ledger, lambda one: one.read(behind, last), lambda one: one.read(behind, last)):
            yield from convert(ledger.ledger_id, entries)

    def tiered(self, ledger_id: int) -> TieredHandle:
        """A ledger of the log's tier. Raises NoSuchLedgerError."""
        if self.uid is None:
            raise NoSuchLedgerError(ledger_id)
        places = self.logs.reader.tier
        found = places.find(self.name, self.uid, [ledger_id]).get(ledger_id)
        if found is None:
            raise NoSuchLedgerError(ledger_id)
        return self._handle(found)

    def _handle(self, place: TieredPlace) -> TieredHandle:
        from bk_spark.files.file_store import store_with  # and pyarrow.fs, which others need not wait for

        assert self.uid is not None, "a place is one of a log's tier"
        return TieredHandle(self.name, place, store_with(self.logs.reader.tier.known_settings(self.name, self.uid).catalog))

    def _from_files(
        self,
        ledger: TieredHandle,
        read: Callable[[TieredHandle], Iterator[pa.RecordBatch]],
        read_on_bookies: Callable[[ReadHandle], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        """A handle opens its files before it gives the first row, so a read that finds one gone has given nothing."""
        given = 0
        try:
            for batch in read(ledger):
                given += 1
                yield batch
        except CorruptionError:
            instead = None if given else self._elsewhere(ledger)
            if instead is None:
                raise
            yield from read(instead) if isinstance(instead, TieredHandle) else read_on_bookies(instead)

    def _elsewhere(self, ledger: TieredHandle) -> ReadableLedger | None:
        """Where others' new files have the rows by now; or on bookies, where a release left what had no files any more."""
        now = self.tiered(ledger.ledger_id)
        if now.place != ledger.place:
            return now
        try:
            return self.on_bookies(ledger.ledger_id)
        except NoSuchLedgerError:
            return None
