"""How far a stream can read a topic with transactions: not beyond the first message of one that is still open."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.errors import NoSuchEntryError, NoSuchLedgerError, UnreadableMessagesError
from bk_spark.pulsar.messages import decode_in_turns
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.transactions import OpenTransactions
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.entries import TopicEntries
from bk_spark.topic.gathering import gathered
from bk_spark.topic.places import windows_before
from bk_spark.topic.view import TopicView

SCAN_BYTES = 64 * 1024 * 1024
"""Read in one go, before the stream may take what is known: about a second's work."""

LOOK_BACK = 1024
"""Entries before the start in which aborts are looked for, if a transaction seems open. A message that was under way when its
transaction was aborted comes soon behind the abort."""


class TransactionScan:
    """Reads a topic once, from where its stream stands. One thread uses it."""

    def __init__(self, access: TopicAccess, topic: TopicName, start: Position) -> None:
        self._entries = TopicEntries(access, topic)
        self._start = self._at = start
        self._transactions = OpenTransactions()
        self._has_looked_back = False
        self.is_done = False
        """Whether all that the last view had was read."""

    def readable(self, view: TopicView) -> Position:
        """Go on in ``view``. Returns how far a stream can read as far as this scan has come."""
        self.is_done = self._read_on(view)
        if self._transactions.is_any_open and not self._has_looked_back:
            self._look_back(view)
        return self._transactions.readable_until(self._at)

    def _read_on(self, view: TopicView) -> bool:
        """Read about SCAN_BYTES. Whether that was all."""
        read = 0
        for ledger, stretch in view.stretches(self._at, view.end):
            if ledger.unreadable is None:
                for rows in self._rows(stretch):
                    self._transactions.feed(stretch.ledger_id, rows)
                    read += rows.nbytes
                    if read > SCAN_BYTES and rows.num_rows:
                        self._at = Position(stretch.ledger_id, rows.column("entry_id")[-1].as_py() + 1)
                        return False
            self._at = Position(stretch.ledger_id, stretch.last_entry_id + 1)
        self._at = max(self._at, view.end)
        return True

    def _look_back(self, view: TopicView) -> None:
        for window in windows_before(view, self._start, LOOK_BACK, LOOK_BACK):
            for stretch in window:
                for rows in self._rows(stretch):
                    self._transactions.learn_earlier(rows)
        self._has_looked_back = True

    def _rows(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """Decoded rows. Entries that were trimmed or are unreadable have none: the batch that reads them says so."""
        try:
            entries = self._entries.read(stretch.ledger_id, stretch.first_entry_id, stretch.last_entry_id)
            for ids, payloads in gathered(entries):
                for decoded in decode_in_turns(ids, payloads):
                    yield decoded.rows
        except (NoSuchLedgerError, NoSuchEntryError, UnreadableMessagesError):
            return
