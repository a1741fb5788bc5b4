"""One read: sends the requested entries in ascending order, each from the newest batch that holds it.

Small batches of whole entries are joined: an Apache client adds entry by entry, and each reply costs both sides a fraction of a
millisecond, however few entries it has.

A batch that turns out to be damaged, or cannot be read from the disk, is reported for repair; its reader takes another replica.

Ref: docs/rules.md, storage rules 1 and 4, protocol rules 39 and 50.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bk_spark.bookie.admission import status_of
from bk_spark.bookie.index.look_up import newest_holding, next_asked, stretch_end
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.config import MIB
from bk_spark.entries.batch import EncodedBatch
from bk_spark.entries.recut import coalesce_whole, cut
from bk_spark.errors import BookKeeperError, CorruptionError, StorageError
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status

JOINED_BYTES: Final = MIB
"""Up to here batches of whole entries are joined. A reply of this size costs little for each byte."""

JOINED_BATCHES: Final = 64
"""And so many at most. Each may be a read of a disk: at 8 ms each a reply comes after half a second, before its reader asks
another bookie as well."""

ReportDamage = Callable[[Sequence[StoredBatch]], None]
"""Takes stored batches that may be damaged. Returns at once; any thread may call it."""


class BatchRead:
    """Answers one request that was admitted."""

    def __init__(
        self, storage: StoredLedgers, request: ReadRequest, maximum_bytes: int, report: ReportDamage, *, is_limbo: bool
    ) -> None:
        """With ``is_limbo``, a missing entry is UNKNOWN. It must have been read before the ledger was looked up."""
        self._storage = storage
        self._report = report
        self._request = request
        self._budget = min(request.maximum_bytes, maximum_bytes)
        self._is_limbo = is_limbo
        self._window = storage.batches(request.ledger_id, request.first, request.last)
        self._sent_bytes = 0

    def replies(self) -> Iterator[ReadBatch | ReadEnd]:
        held: list[EncodedBatch] = []
        nbytes = 0
        for part in self._parts():
            whole = part if isinstance(part, EncodedBatch) and part.header.is_apache else None
            if held and (whole is None or len(held) == JOINED_BATCHES or nbytes + len(whole.body) > JOINED_BYTES):
                joined, held, nbytes = _joined(held), [], 0
                yield from map(ReadBatch, joined)
            if whole is not None:
                held.append(whole)
                nbytes += len(whole.body)
            elif part is not None:
                yield ReadBatch(part) if isinstance(part, EncodedBatch) else part

    def _parts(self) -> Iterator[EncodedBatch | ReadEnd | None]:
        """What was asked for, batch by batch, cut where needed, and the end. None comes before the next one is waited for."""
        request = self._request
        floor = request.first  # every requested id below it was sent
        while True:
            position = next_asked(request.pattern, floor)
            if position > request.last:
                yield ReadEnd(Status.OK, request.last + 1)
                return
            try:
                stored = self._newest(position)
                if stored is None:
                    yield self._missing(position)
                    return
                if not self._storage.is_durable(stored):
                    yield None
                end = self._end_before(stored, position)
                if end is not None:
                    yield end
                    return
                batch, floor = self._batch(stored, floor, position)
            except BookKeeperError as problem:
                yield ReadEnd(status_of(problem), position, str(problem))
                return
            yield batch

    def _newest(self, position: int) -> StoredBatch | None:
        """The newest stored batch that holds an entry.

        If the window has none, one that begins further back may have replaced it meanwhile: read the window again.
        """
        stored = newest_holding(self._window.overlapping(position, position), position)
        if stored is None:
            self._window = self._storage.batches(self._request.ledger_id, position, self._request.last)
            stored = newest_holding(self._window.overlapping(position, position), position)
        return stored

    def _missing(self, position: int) -> ReadEnd:
        if self._is_limbo:
            return ReadEnd(Status.UNKNOWN, position, f"whether there was an entry {position} here is unknown")
        self._storage.verify_missing(self._request.ledger_id, position)
        return ReadEnd(Status.NO_SUCH_ENTRY, position, f"there is no entry {position} here")

    def _end_before(self, stored: StoredBatch, position: int) -> ReadEnd | None:
        """The end of the read if ``stored`` must not be sent: it is beyond the budget, or perhaps not durable."""
        if self._sent_bytes and self._sent_bytes + stored.size_bytes > self._budget:
            return ReadEnd(Status.OK, position)
        if not self._storage.wait_durable(stored):
            return ReadEnd(Status.UNKNOWN, position, f"entry {position} was received, whether it is durable is unknown")
        return None

    def _batch(self, stored: StoredBatch, floor: int, position: int) -> tuple[EncodedBatch, int]:
        """The part of ``stored`` to send from ``position`` on, and the id after it; ids from ``floor`` on were not sent yet."""
        request = self._request
        batches = self._window.overlapping(position, min(stored.last_entry_id, request.last))
        end = stretch_end(stored, batches, request.pattern, position, request.last)
        assert floor <= position <= end <= request.last, "the read goes on, and not beyond what was asked for"
        piece = cut(self._read(stored), floor, end)
        assert piece is not None  # it holds position
        self._sent_bytes += len(piece.body)
        return piece, end + 1

    def _read(self, stored: StoredBatch) -> EncodedBatch:
        try:
            return self._storage.get(stored)
        except (CorruptionError, StorageError):
            self._report([stored])
            raise


def _joined(batches: Sequence[EncodedBatch]) -> Sequence[EncodedBatch]:
    """The same entries in few batches. Between them is no more than other bookies' stripes: each id of a read is found, or ends
    it."""
    if len(batches) == 1:
        return batches
    try:
        return coalesce_whole(batches)
    except CorruptionError:
        return batches  # whoever reads them is told which one is none
