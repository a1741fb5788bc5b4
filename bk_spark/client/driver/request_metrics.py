"""What is counted of a client's requests to bookies, one batch each, and of what becomes of its operations.

Ref: metrics.py; docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.protocol.state_machine import ChooseReplacements, ReplacementsChosen
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import BookKeeperError
from bk_spark.telemetry.metrics import (
    ADD_S,
    ADDED_BYTES,
    ADDS,
    ENSEMBLE_CHANGES,
    ERRORS,
    READ_BYTES,
    READ_S,
    READS,
    WITHOUT_SPARE,
)
from bk_spark.telemetry.registry import by_label
from bk_spark.wire.messages import AddReply, Status

STOPPED = "stopped"
"""The status of a read that its reader ended: it had all that it wanted, or another bookie was quicker."""

_STATUSES = [status.name.lower() for status in Status]
_ADDS = by_label(ADDS, _STATUSES)
_READS = by_label(READS, [*_STATUSES, STOPPED])

Clock = Callable[[], float]


def counted_add(batch: EncodedBatch, clock_s: Clock, on_reply: Callable[[AddReply], None]) -> Callable[[AddReply], None]:
    """``on_reply``, which also counts. To be made when the add is sent."""
    nbytes, began_s = len(batch.body), clock_s()

    def answered(reply: AddReply) -> None:
        _ADDS[reply.status.name.lower()].inc()
        ADDED_BYTES.inc(nbytes)
        ADD_S.observe(clock_s() - began_s)
        on_reply(reply)

    return answered


class ReadMeter:
    """Counts one read of one bookie. To be made when it is sent."""

    def __init__(self, clock_s: Clock) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._nbytes = 0

    def take(self, batch: EncodedBatch) -> None:
        self._nbytes += len(batch.body)

    def end(self, status: Status | None) -> None:
        """The read ended or broke off, or, None, was stopped."""
        _READS[STOPPED if status is None else status.name.lower()].inc()
        READ_BYTES.inc(self._nbytes)
        READ_S.observe(self._clock_s() - self._began_s)


def count_choice(wanted: ChooseReplacements, chosen: ReplacementsChosen) -> None:
    """A writer looked for other bookies in the place of those that failed."""
    if chosen.bookies:
        ENSEMBLE_CHANGES.inc()
    if len(chosen.bookies) < len(wanted.slots):
        WITHOUT_SPARE.inc()


def count_error(error: BookKeeperError) -> None:
    """An append, or an operation, ended in an error."""
    ERRORS.labels(type(error).__name__).inc()
