"""Counts the requests to a bookie.

Adds are counted group by group, on the event loop: three observations a request and three increments for each status in a
group, some microseconds where a request costs a hundred. Reads are counted once each, when they end.

Ref: telemetry/metrics.py; docs/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bk_spark.telemetry import metrics
from bk_spark.telemetry.registry import by_label
from bk_spark.wire.messages import AddRequest, FenceRequest, ReadBatch, ReadEnd, StagedRequest, Status

BROKEN_OFF = "broken_off"
"""The status of a read whose client left before its end."""

_STATUSES = [status.name.lower() for status in Status]
_ADDS = by_label(metrics.BOOKIE_ADDS, _STATUSES)
_ADDED_ENTRIES = by_label(metrics.BOOKIE_ADDED_ENTRIES, _STATUSES)
_ADDED_BYTES = by_label(metrics.BOOKIE_ADDED_BYTES, _STATUSES)
_FENCES = by_label(metrics.BOOKIE_FENCES, _STATUSES)
_READS = by_label(metrics.BOOKIE_READS, [*_STATUSES, BROKEN_OFF])
_CONFIRMED_READS = by_label(metrics.BOOKIE_CONFIRMED_READS, _STATUSES)


@dataclass(slots=True)
class AskedRequest:
    """What is kept of a request for the metrics until it is answered."""

    kind: type[StagedRequest]
    began_s: float
    entries: int = 0
    nbytes: int = 0
    is_recovery: bool = False

    @classmethod
    def of(cls, request: StagedRequest, now_s: float) -> AskedRequest:
        if isinstance(request, AddRequest):
            return cls(AddRequest, now_s, request.batch.header.count, len(request.batch.body), request.recovery)
        return cls(type(request), now_s)


def count_answers(answers: Iterable[tuple[AskedRequest, Status]], now_s: float) -> tuple[int, int]:
    """Count requests that were answered together. Returns how many entries and bytes recoveries have brought with them."""
    copied_entries = copied_bytes = 0
    totals: dict[Status, list[int]] = {}
    for asked, status in answers:
        if asked.kind is AddRequest:
            total = totals.setdefault(status, [0, 0, 0])
            total[0] += 1
            total[1] += asked.entries
            total[2] += asked.nbytes
            if asked.is_recovery and status is Status.OK:
                copied_entries, copied_bytes = copied_entries + asked.entries, copied_bytes + asked.nbytes
            metrics.BOOKIE_ADD_S.observe(now_s - asked.began_s)
            metrics.BOOKIE_ADD_ENTRIES.observe(asked.entries)
            metrics.BOOKIE_ADD_BYTES.observe(asked.nbytes)
        elif asked.kind is FenceRequest:
            _FENCES[status.name.lower()].inc()
    for status, (requests, entries, nbytes) in totals.items():
        name = status.name.lower()
        _ADDS[name].inc(requests)
        _ADDED_ENTRIES[name].inc(entries)
        _ADDED_BYTES[name].inc(nbytes)
    if copied_entries:
        metrics.BOOKIE_COPIED_ENTRIES.inc(copied_entries)
        metrics.BOOKIE_COPIED_BYTES.inc(copied_bytes)
    return copied_entries, copied_bytes


def count_refused_add(status: Status) -> None:
    """Count an add that was refused before it was staged."""
    _ADDS[status.name.lower()].inc()


def count_confirmed_read(status: Status) -> None:
    _CONFIRMED_READS[status.name.lower()].inc()


def count_whole_reads(statuses: Sequence[Status], entries: int, nbytes: int, elapsed_s: float) -> None:
    """Count reads of Apache's clients that were served together."""
    for status, count in Counter(statuses).items():
        _READS[status.name.lower()].inc(count)
    metrics.BOOKIE_READ_ENTRIES.inc(entries)
    metrics.BOOKIE_READ_BYTES.inc(nbytes)
    metrics.BOOKIE_READ_S.observe(elapsed_s)


class ServedReadMeter:
    """Counts one read: a ``with`` statement surrounds it, and ``take`` gets each reply, from one thread at a time."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._status = BROKEN_OFF
        self.ended: Status | None = None
        """The status of its last reply, once that was taken."""
        self._entries = 0
        self._nbytes = 0

    def take(self, reply: ReadBatch | ReadEnd) -> None:
        if isinstance(reply, ReadBatch):
            self._entries += reply.batch.header.count
            self._nbytes += len(reply.batch.body)
        else:
            self.ended = reply.status
            self._status = reply.status.name.lower()

    def __enter__(self) -> ServedReadMeter:
        return self

    def __exit__(self, *_: object) -> None:
        _READS[self._status].inc()
        metrics.BOOKIE_READ_ENTRIES.inc(self._entries)
        metrics.BOOKIE_READ_BYTES.inc(self._nbytes)
        metrics.BOOKIE_READ_S.observe(self._clock_s() - self._began_s)
