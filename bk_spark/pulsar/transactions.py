"""Transactions: which messages count, and how far a stream may read. Pure.

A message of a transaction counts once a marker behind it, in the same topic, commits the transaction. A marker that aborts it
takes all its messages away. Without a marker it is open: Pulsar's consumers read no further than its first message.

Ref: Apache Pulsar's PIP-31.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.rows import bools, ids_of

COMMIT: Final = 21
ABORT: Final = 22

MAX_ABORTED: Final = 100_000
"""Aborted transactions that are remembered, in some 20 MB: messages come behind an abort within seconds."""

NO_TRANSACTION: Final = -1
"""In place of the number of a row's transaction."""

Transaction = tuple[int, int]
"""The most and the least significant bits of its id."""


class Fates:
    """Which transactions were committed or aborted, as far as markers were seen. It serves the read of one part of a topic, and
    keeps some 200 bytes for each transaction that ends there."""

    def __init__(self) -> None:
        self._committed: dict[Transaction, bool] = {}

    def learn(self, rows: pa.RecordBatch) -> None:
        """Take in the markers among decoded rows."""
        for kind, transaction in _markers(rows):
            self._committed[transaction] = kind == COMMIT

    def learn_aborts(self, earlier: Fates) -> None:
        """Take in the transactions that were aborted, as earlier entries tell. One that they say was committed may go on."""
        self._committed |= {one: False for one, is_committed in earlier._committed.items() if not is_committed}

    def unknown(self, rows: pa.RecordBatch) -> set[Transaction]:
        """The transactions of messages in ``rows`` for which no marker was seen."""
        transactions, _ = _transactions(rows)
        return {one for one in transactions if one not in self._committed}

    def has_all(self, transactions: set[Transaction]) -> bool:
        """Whether a marker was seen for each of them."""
        return transactions <= self._committed.keys()

    def committed_mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Where a row counts: it is of no transaction, or of one that is known to be committed. Markers count."""
        transactions, numbers = _transactions(rows)
        counts = np.array([*(self._committed.get(one, False) for one in transactions), True])
        return bools(counts[numbers])


class OpenTransactions:
    """The transactions of a topic that are open, and where each began.

    A message may come behind the marker of its transaction: one that was under way when the transaction timed out. Behind an
    abort it is passed over, and behind a commit it opens the transaction again, as Pulsar's brokers have it. The last
    MAX_ABORTED aborted transactions are remembered for that, those that committed are not.
    """

    def __init__(self) -> None:
        self._begun: dict[Transaction, Position] = {}
        self._aborted: dict[Transaction, None] = {}

    def feed(self, ledger_id: int, rows: pa.RecordBatch) -> None:
        """The next decoded rows of the topic, of one ledger."""
        if rows.column("txn_most").null_count == rows.num_rows:
            return
        markers = _markers_by_row(rows)
        transactions, numbers = _transactions(rows)
        ids = ids_of(rows)
        for row in sorted([*np.flatnonzero(numbers != NO_TRANSACTION).tolist(), *markers]):
            if row in markers:
                if markers[row][0] in (COMMIT, ABORT):
                    self._end(*markers[row])
            elif (transaction := transactions[numbers[row]]) not in self._aborted:
                self._begun.setdefault(transaction, Position(ledger_id, int(ids[row])))

    def learn_earlier(self, rows: pa.RecordBatch) -> None:
        """Decoded rows from before the first ones that were fed: transactions that were aborted there are not open."""
        for kind, transaction in _markers(rows):
            if kind == ABORT:
                self._end(kind, transaction)

    def _end(self, kind: int, transaction: Transaction) -> None:
        self._begun.pop(transaction, None)
        if kind == ABORT:
            self._aborted[transaction] = None
            if len(self._aborted) > MAX_ABORTED:
                del self._aborted[next(iter(self._aborted))]

    @property
    def is_any_open(self) -> bool:
        return bool(self._begun)

    def readable_until(self, scanned_to: Position) -> Position:
        """The first message of the oldest transaction that is open; ``scanned_to`` if none is."""
        return min([*self._begun.values(), scanned_to])


def _transactions(rows: pa.RecordBatch) -> tuple[list[Transaction], npt.NDArray[np.int64]]:
    """The transactions of messages, and for each row the number of its own; NO_TRANSACTION outside of them and for markers."""
    most, least = rows.column("txn_most"), rows.column("txn_least")
    places = np.flatnonzero(np.asarray(pc.and_(pc.is_null(rows.column("marker_type")), pc.is_valid(most))))
    numbers = np.full(rows.num_rows, NO_TRANSACTION, np.int64)
    if not len(places):
        return [], numbers
    high, low = (np.asarray(pc.fill_null(part, 0))[places] for part in (most, least))
    # The messages of one transaction mostly come in a row: only such runs are looked at one by one.
    begins = np.flatnonzero(np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1])))
    distinct: dict[Transaction, int] = {}
    runs = zip(high[begins].tolist(), low[begins].tolist(), strict=True)
    of_run = [distinct.setdefault(transaction, len(distinct)) for transaction in runs]
    numbers[places] = np.repeat(of_run, np.diff(np.append(begins, len(places))))
    return list(distinct), numbers


def _markers(rows: pa.RecordBatch) -> list[tuple[int, Transaction]]:
    return [one for one in _markers_by_row(rows).values() if one[0] in (COMMIT, ABORT)]


def _markers_by_row(rows: pa.RecordBatch) -> dict[int, tuple[int, Transaction]]:
    kinds = rows.column("marker_type")
    if kinds.null_count == rows.num_rows:
        return {}
    places = np.flatnonzero(np.asarray(pc.is_valid(kinds))).tolist()
    chosen = rows.take(pa.array(places, pa.int64()))
    ids = zip(chosen.column("txn_most").to_pylist(), chosen.column("txn_least").to_pylist(), strict=True)
    found = zip(chosen.column("marker_type").to_pylist(), ids, strict=True)
    return {place: (kind, (most or 0, least or 0)) for place, (kind, (most, least)) in zip(places, found, strict=True)}
