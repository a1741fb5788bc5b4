"""Reads a portion of a topic: stretches of its ledgers → the messages in them, in order.

The entries of a portion may need others that lie outside of it. The first chunks of a chunked message lie before its last one,
which says where the message is. The marker that commits a transaction lies behind its messages. Both are looked for in the
topic's other entries, so that the portions of a topic together give the messages that one consumer of all of it gets.

    portion of entries 10 to 19, entry 12 is chunk 2 of 3 and entry 13 chunk 3 → entries below 10 are read back to chunk 1
    entry 15 is of a transaction that entry 31 commits → entries from 16 on are read ahead to that marker
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.errors import InternalError, MessagesGoneError, NoSuchEntryError, NoSuchLedgerError, UnreadableMessagesError
from bk_spark.pulsar.chunks import ChunkAssembler
from bk_spark.pulsar.messages import decode_in_turns
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.selection import encrypted, of_chunks, without_markers, without_tombstones
from bk_spark.pulsar.transactions import Fates, Transaction
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.entries import TopicEntries
from bk_spark.topic.gathering import gathered
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.places import windows_before

LOOK_BACK_FIRST = 256
LOOK_BACK_MOST = 65_536
"""Entries in which the first chunks of a message, or the abort of its transaction, are looked for, at first and in all. A
producer sends the chunks of a message one after the other, so other producers' entries lie between them at most."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MessageChoice:
    """Which messages a reader wants, and what it does without the others."""

    tombstones: bool = True
    """Whether messages without a value are given."""
    skip_unreadable: bool = False
    """Whether messages that cannot be read are left out and counted, in place of an error."""
    fail_on_data_loss: bool = True
    """Whether messages that were trimmed before they were read are an error, not a warning."""

    def lost(self, topic: str, problem: str) -> None:
        """Messages are gone. Raises MessagesGoneError, or warns."""
        gone = MessagesGoneError(topic, problem)
        if self.fail_on_data_loss:
            raise gone
        logger.warning("%s", gone.warning)


@dataclass(frozen=True, slots=True)
class TopicPortion:
    """Entries of one topic, or of one partition, that one task reads, in the topic's order and without gaps."""

    topic: TopicName
    stretches: tuple[Stretch, ...]
    from_batch_index: int = 0
    """The first message to be read of the first entry, if that is a batch."""
    until: Position | None = None
    """How far the fate of transactions is looked for, exclusive; None for all that is confirmed."""
    is_settled: bool = False
    """Whether no transaction of it is open: who reads it never comes back to it, so an unknown fate is an error."""


class TopicReading:
    """One read of a portion. One thread uses it, once."""

    def __init__(self, access: TopicAccess, portion: TopicPortion, choice: MessageChoice) -> None:
        self._portion = portion
        self._choice = choice
        self._entries = TopicEntries(access, portion.topic)
        self._ledgers = TopicLedgers(access)
        self._chunks = ChunkAssembler()
        self._fates = Fates()
        self._ahead: Iterator[pa.RecordBatch] = iter(())
        self._ahead_at = Position(-1, -1)
        self.skipped = 0
        """Messages and entries that were left out because they cannot be read."""
        self.incomplete = 0
        """Chunked messages that were left out because chunks are missing, as Pulsar's own consumers leave them out."""

    def rows(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The messages in DECODED_SCHEMA, with the id of the ledger that they are in.

        Raises MessagesGoneError, UnreadableMessagesError, BookieUnavailableError, MetadataUnavailableError.
        """
        for stretch in self._portion.stretches:
            try:
                yield from self._rows_of(stretch)
            except (NoSuchLedgerError, NoSuchEntryError):
                if self._is_listed(stretch.ledger_id):
                    raise
                problem = f"Pulsar's retention trimmed ledger {stretch.ledger_id}, or the topic was deleted"
                self._choice.lost(str(self._portion.topic), problem)
        if self.skipped or self.incomplete:
            left_out = f"{self.skipped} unreadable messages or entries and {self.incomplete} messages with missing chunks"
            logger.warning("%s of topic '%s' were left out", left_out, self._portion.topic)

    def _rows_of(self, stretch: Stretch) -> Iterator[tuple[int, pa.RecordBatch]]:
        for decoded in self._decoded([stretch], counts=True):
            rows = self._committed(stretch.ledger_id, self._whole(stretch.ledger_id, self._from_start(stretch, decoded)))
            rows = without_markers(rows)
            if not self._choice.tombstones:
                rows = without_tombstones(rows)
            if rows.num_rows:
                yield stretch.ledger_id, rows

    def _decoded(self, stretches: Iterable[Stretch], *, counts: bool) -> Iterator[pa.RecordBatch]:
        """``counts``: whether what cannot be read matters, because it is in the portion."""
        for one in stretches:
            behind = one.first_entry_id
            try:
                for ids, payloads in gathered(self._entries.read(one.ledger_id, one.first_entry_id, one.last_entry_id)):
                    for decoded in decode_in_turns(ids, payloads):
                        for unreadable in decoded.unreadable if counts else ():
                            self.unreadable(one.ledger_id, unreadable.entry_id, unreadable.problem)
                        yield decoded.rows
                    behind = int(ids[-1]) + 1
            except UnreadableMessagesError as problem:  # of a copy: it has a problem, or of one message, and is not skipped
                if not self._choice.skip_unreadable:
                    raise
                if counts:
                    self._leave_out(one, behind, problem)

    def _leave_out(self, stretch: Stretch, first: int, problem: UnreadableMessagesError) -> None:
        """The entries of a copy from ``first`` on."""
        entries = stretch.last_entry_id - first + 1
        left_out = f"{entries} entries of {problem.place}"
        logger.warning("%s of topic '%s' are left out: %s", left_out, self._portion.topic, problem.problem)
        self.skipped += entries

    def _from_start(self, stretch: Stretch, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without encrypted rows, and without messages before the first one to be read."""
        locked = encrypted(rows)
        for one in locked:
            self.unreadable(stretch.ledger_id, one.entry_id, f"it is encrypted with key '{one.key}'")
        if locked:
            rows = rows.filter(pc.is_null(rows.column("encryption_key")))
        first = self._portion.from_batch_index
        if first > 0 and stretch is self._portion.stretches[0]:
            is_first = pc.equal(rows.column("entry_id"), stretch.first_entry_id)
            rows = rows.filter(pc.invert(pc.and_(is_first, pc.less(rows.column("batch_index"), first))))
        return rows

    def _whole(self, ledger_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Chunked messages put together."""
        missing = self._chunks.needs_look_back(rows)
        if missing:
            self._look_back(missing)
        assembled = self._chunks.feed(ledger_id, rows)
        self.incomplete += assembled.incomplete
        for unreadable in assembled.unreadable:
            self.unreadable(ledger_id, unreadable.entry_id, unreadable.problem)
        return assembled.rows

    def _look_back(self, uuids: frozenset[str]) -> None:
        """Read the earlier chunks of these messages, which lie before the portion."""
        found: list[pa.RecordBatch] = []
        with suppress(NoSuchLedgerError, NoSuchEntryError):  # trimmed meanwhile: the chunks are missing
            for window in self._windows_before():
                rows = [of_chunks(batch, uuids) for batch in self._decoded(window, counts=False)]
                found[:0] = rows
                if uuids <= {uuid for batch in found for uuid in _begun(batch)}:
                    break
        self._chunks.prime(found, uuids)

    def _read_back(self, unknown: set[Transaction]) -> None:
        """Learn which of these transactions were aborted before the portion: a message may come behind the abort of its own."""
        earlier = Fates()
        with suppress(NoSuchLedgerError, NoSuchEntryError):  # trimmed meanwhile: their fates stay unknown
            for window in self._windows_before():
                for batch in self._decoded(window, counts=False):
                    earlier.learn(batch)
                self._fates.learn_aborts(earlier)
                if self._fates.has_all(unknown):
                    return

    def _windows_before(self) -> Iterator[list[Stretch]]:
        """What lies before the portion, in windows, the nearest first."""
        view = self._ledgers.view(self._portion.topic)
        first = self._portion.stretches[0]
        start = Position(first.ledger_id, first.first_entry_id)
        return windows_before(view, start, LOOK_BACK_FIRST, LOOK_BACK_MOST)

    def _committed(self, ledger_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without messages of transactions that were aborted, or are still open."""
        if rows.column("txn_most").null_count == rows.num_rows:
            return rows
        self._fates.learn(rows)
        unknown = self._fates.unknown(rows)
        if unknown:
            self._read_ahead(Position(ledger_id, rows.column("entry_id")[-1].as_py() + 1), unknown)
            if self._portion.is_settled:
                self._settle(ledger_id, unknown)
        return rows.filter(self._fates.committed_mask(rows))

    def _settle(self, ledger_id: int, unknown: set[Transaction]) -> None:
        """All of these transactions have ended: markers that are not behind lie before the portion. Raises InternalError."""
        if not self._fates.has_all(unknown):
            self._read_back(unknown)
        if not self._fates.has_all(unknown):
            raise InternalError(ledger_id, f"the end of a transaction of topic '{self._portion.topic}' is not found again")

    def _read_ahead(self, behind: Position, unknown: set[Transaction]) -> None:
        """Learn the fates of these transactions from the markers from ``behind`` on, until all are known or the topic ends."""
        if self._ahead_at < behind:
            self._ahead, self._ahead_at = self._markers_from(behind), behind
        for batch in self._ahead:
            self._fates.learn(batch)
            if self._fates.has_all(unknown):
                return

    def _markers_from(self, behind: Position) -> Iterator[pa.RecordBatch]:
        """The rows from a position on, also behind the portion. ``_ahead_at`` follows."""
        view = self._ledgers.view(self._portion.topic)
        until = view.end if self._portion.until is None else self._portion.until
        for ledger, stretch in view.reaching(until).stretches(behind, until):
            if ledger.unreadable is None:
                for batch in self._decoded([stretch], counts=False):
                    if batch.num_rows:
                        self._ahead_at = Position(stretch.ledger_id, batch.column("entry_id")[-1].as_py() + 1)
                    yield batch

    def unreadable(self, ledger_id: int, entry_id: int, problem: str) -> None:
        """A message cannot be read. Raises UnreadableMessagesError, or counts it."""
        if not self._choice.skip_unreadable:
            raise UnreadableMessagesError(str(self._portion.topic), f"message {ledger_id}:{entry_id}", problem)
        self.skipped += 1

    def _is_listed(self, ledger_id: int) -> bool:
        """Whether Pulsar says that a ledger is on the bookies."""
        [listed] = self._ledgers.store.managed_ledgers([self._portion.topic])
        return listed is not None and any(one.ledger_id == ledger_id and one.is_on_bookies for one in listed.ledgers)


def _begun(rows: pa.RecordBatch) -> Sequence[str]:
    """The chunked messages whose first chunk is among the rows."""
    is_first = pc.equal(rows.column("chunk_id"), 0)
    found: list[str] = rows.column("uuid").filter(is_first).to_pylist()
    return found
