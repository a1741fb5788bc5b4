"""Which bookies fail so often that new ensembles do without them for a while. Pure.

A bookie that fails ``errors`` requests within ``period_ms`` is out for ``period_ms``. What it fails meanwhile, to handles
that use it still, is not counted: it returns for certain, and is out again after as many new failures.

Worked example, 3 failures within 60 s: failures at 0, 30 and 50 s put it out from 50 to 110 s; at 0, 30 and 70 s they do not.

Ref: Apache BookKeeper's bookie health check; situation 21.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_BOOKIES = 1000
"""Bookies remembered; beyond it the one whose last counted failure is the oldest is forgotten. More than clusters have."""


@dataclass(slots=True)
class _Record:
    failed_ms: list[int] = field(default_factory=list)
    """The failures of the last period, ascending; with the last of ``errors`` it is out until they are older."""
    out_until_ms: int | None = None


class Quarantine:
    """The failures of a client's bookies. Times are of one clock that never goes back."""

    def __init__(self, errors: int, period_ms: int) -> None:
        self._errors = errors
        self._period_ms = period_ms
        self._records: dict[str, _Record] = {}

    def report(self, bookie_id: str, now_ms: int) -> bool:
        """Count a failure; gives back whether it is this one that puts the bookie out."""
        record = self._records.pop(bookie_id, None) or _Record()
        self._records[bookie_id] = record
        if len(self._records) > MAX_BOOKIES:
            del self._records[next(iter(self._records))]
        if self._is_out(record, now_ms):
            return False
        record.failed_ms = [one for one in record.failed_ms if one > now_ms - self._period_ms] + [now_ms]
        if len(record.failed_ms) < self._errors:
            return False
        record.out_until_ms = now_ms + self._period_ms
        return True

    def bookies(self, now_ms: int) -> frozenset[str]:
        """Those that are out."""
        return frozenset(bookie_id for bookie_id, record in self._records.items() if self._is_out(record, now_ms))

    def _is_out(self, record: _Record, now_ms: int) -> bool:
        return record.out_until_ms is not None and now_ms < record.out_until_ms
