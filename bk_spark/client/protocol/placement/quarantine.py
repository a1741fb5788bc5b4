"""Which bookies to do without for a while, because they failed too often. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_BOOKIES = 1000
"""Bookies that a quarantine remembers, more than clusters have. Beyond it the one with the oldest last failure is forgotten."""


@dataclass(slots=True)
class _Record:
    failed_ms: list[int] = field(default_factory=list)
    """The failures of the last period, ascending."""
    out_until_ms: int = 0


class Quarantine:
    """Bookies that fail so often that new ensembles do without them for a while. Times are of one clock that never goes back.

    A bookie that fails ``errors`` requests within ``period_ms`` is out for ``period_ms``. Meanwhile its failures, to handles
    that still use it, are not counted. So it returns for certain, and is out again after as many new failures.

    Worked example, 3 failures within 60 s: failures at 0, 30 and 50 s put it out from 50 to 110 s; at 0, 30 and 70 s they do
    not.

    Ref: Apache BookKeeper's bookie health check; situation 21.
    """

    def __init__(self, errors: int, period_ms: int) -> None:
        self._errors = errors
        self._period_ms = period_ms
        self._records: dict[str, _Record] = {}

    def report(self, bookie_id: str, now_ms: int) -> bool:
        """Count a failure; returns whether this failure puts the bookie out."""
        record = self._records.pop(bookie_id, None) or _Record()
        self._records[bookie_id] = record
        if len(self._records) > MAX_BOOKIES:
            del self._records[next(iter(self._records))]
        if now_ms < record.out_until_ms:
            return False
        record.failed_ms = [failed_ms for failed_ms in record.failed_ms if failed_ms > now_ms - self._period_ms] + [now_ms]
        if len(record.failed_ms) < self._errors:
            return False
        record.out_until_ms = now_ms + self._period_ms
        return True

    def bookies(self, now_ms: int) -> frozenset[str]:
        """The bookies that are out."""
        return frozenset(bookie_id for bookie_id, record in self._records.items() if now_ms < record.out_until_ms)
