"""How far a stream can read a topic with transactions: not beyond the first message of one that is still open."""

from __future__ import annotations

from bk_spark.client.topic.access import TopicAccess
from bk_spark.client.topic.gathering import gathered
from bk_spark.client.topic.view import TopicView
from bk_spark.errors import NoSuchEntryError, NoSuchLedgerError
from bk_spark.pulsar.messages import decode_in_turns
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.transactions import OpenTransactions

SCAN_BYTES = 64 * 1024 * 1024
"""Read in one go, before the stream may take what is known: about a second's work."""


class TransactionScan:
    """Reads a topic once, from where its stream stands. One thread uses it."""

    def __init__(self, access: TopicAccess, start: Position) -> None:
        self._open = access.open_ledger
        self._at = start
        self._transactions = OpenTransactions()
        self.is_done = False
        """Whether all that the last view had was read."""

    def readable(self, view: TopicView) -> Position:
        """Go on in ``view``. Returns how far a stream can read as far as this scan has come."""
        start, read = self._at, 0
        self.is_done = False
        for ledger, stretch in view.stretches(start, view.end):
            if ledger.elsewhere is None:
                try:
                    entries = self._open(stretch.ledger_id).read_unconfirmed(stretch.first_entry_id, stretch.last_entry_id)
                    for ids, payloads in gathered(entries):
                        for decoded in decode_in_turns(ids, payloads):
                            self._transactions.feed(stretch.ledger_id, decoded.rows)
                        self._at = Position(stretch.ledger_id, int(ids[-1]) + 1)
                        read += payloads.nbytes
                        if read > SCAN_BYTES:
                            return self._transactions.readable_until(self._at)
                except (NoSuchLedgerError, NoSuchEntryError):
                    pass  # trimmed meanwhile: the batch that reads it says so
            self._at = Position(stretch.ledger_id, stretch.last_entry_id + 1)
        self.is_done, self._at = True, max(self._at, view.end)
        return self._transactions.readable_until(self._at)
