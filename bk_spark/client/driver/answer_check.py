"""Checks the form of a bookie's answer to one read. An answer of another form ends with a CorruptionError.

Batches come in ascending order without duplicates. Each is of the requested ledger and range, and all together exceed the
requested bytes by one batch at most. One end follows, and nothing after it. So no bookie can keep a reader busy with data that
it did not ask for. The content of entries is not checked here: their digests protect it.

Ref: proto/bookie.proto; docs/rules.md, protocol rule 58.
"""

from __future__ import annotations

from bk_spark.config import MAX_BATCH_BYTES
from bk_spark.entries.batch import BatchHeader
from bk_spark.errors import CorruptionError
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status

LEAST_BATCH_BYTES = 64
"""A batch counts as at least this many bytes, so that the number of batches without a body is bounded, too."""

_WHAT = "an answer to a read"


class ReadAnswer:
    """The answer so far."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._next = request.first
        self._left_bytes = request.maximum_bytes + MAX_BATCH_BYTES
        self._is_over = False

    def checked(self, reply: ReadBatch | ReadEnd) -> ReadBatch | ReadEnd:
        """The next reply, unchanged. Raises CorruptionError if it may not come here."""
        if self._is_over:
            raise CorruptionError(_WHAT, "it goes on behind its end")
        if isinstance(reply, ReadEnd):
            self._end(reply)
        else:
            self._take(reply.batch.header, len(reply.batch.body))
        return reply

    def _take(self, header: BatchHeader, nbytes: int) -> None:
        request = self._request
        if header.ledger_id != request.ledger_id:
            raise CorruptionError(_WHAT, f"a batch of ledger {header.ledger_id} came for ledger {request.ledger_id}")
        if not self._next <= header.first_entry_id <= header.last_entry_id <= request.last:
            ids = f"{header.first_entry_id} to {header.last_entry_id}"
            raise CorruptionError(_WHAT, f"entries {ids} came where {self._next} to {request.last} were due")
        self._next = header.last_entry_id + 1
        self._left_bytes -= max(nbytes, LEAST_BATCH_BYTES)
        if self._left_bytes < 0:
            raise CorruptionError(_WHAT, f"it has far more than the {request.maximum_bytes} bytes that were asked for")

    def _end(self, end: ReadEnd) -> None:
        self._is_over = True
        if end.status is Status.OK and not self._next <= end.next_entry_id <= self._request.last + 1:
            raise CorruptionError(_WHAT, f"it ends well before entry {end.next_entry_id}, {self._next} was due")
