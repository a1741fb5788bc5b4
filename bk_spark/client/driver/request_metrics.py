"""Metrics of a client: its requests to bookies, its ensemble changes, and the errors of its appends and state machines.

Ref: telemetry/metrics.py; docs/metrics.md.
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
"""The status of a read that its reader stopped: it had everything that it wanted, or another bookie was quicker."""

_STATUSES = [status.name.lower() for status in Status]
_ADDS = by_label(ADDS, _STATUSES)
_READS = by_label(READS, [*_STATUSES, STOPPED])

Clock = Callable[[], float]


def counted_add(batch: EncodedBatch, clock_s: Clock, on_reply: Callable[[AddReply], None]) -> Callable[[AddReply], None]:
    """Wrap ``on_reply`` so that it also counts the add. Call this when the add is sent."""
    nbytes, began_s = len(batch.body), clock_s()

    def answered(reply: AddReply) -> None:
        _ADDS[reply.status.name.lower()].inc()
        ADDED_BYTES.inc(nbytes)
        ADD_S.observe(clock_s() - began_s)
        on_reply(reply)

    return answered


class ReadMeter:
    """Counts one read of one bookie. Create it when the read is sent."""

    def __init__(self, clock_s: Clock) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._nbytes = 0

    def take(self, batch: EncodedBatch) -> None:
        self._nbytes += len(batch.body)

    def end(self, status: Status | None) -> None:
        """The read ended with ``status``; None: its reader stopped it."""
        _READS[STOPPED if status is None else status.name.lower()].inc()
        READ_BYTES.inc(self._nbytes)
        READ_S.observe(self._clock_s() - self._began_s)


def count_choice(wanted: ChooseReplacements, chosen: ReplacementsChosen) -> None:
    """Bookies were chosen to replace others in an ensemble."""
    if chosen.bookies:
        ENSEMBLE_CHANGES.inc()
    if len(chosen.bookies) < len(wanted.slots):
        WITHOUT_SPARE.inc()


def count_error(error: BookKeeperError) -> None:
    """An append or a state machine ended with an error."""
    ERRORS.labels(type(error).__name__).inc()
