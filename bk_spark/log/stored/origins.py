"""Which version of a log added a ledger, and when that was committed.

A listing does not say this, because most readers do not ask. The commits are read backwards until each ledger is found, so the
cost is that of the commits since the oldest of them, and nothing is read of a ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.tree import READS_AT_ONCE
from bk_spark.log.stored.values import Head

_FIRST_LOOK = 8
"""Commits read at first. Each look back is twice as large as the one before: a stream's ledgers come from the last few."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a ledger came into its log."""

    version: int
    time_ms: int | None
    """When the version was committed, since 1970. None for a ledger that a leader opened: its rows came after that commit."""


def origins(reader: LogReader, head: Head, uid: str, ledger_ids: Iterable[int], last: int) -> dict[int, Origin]:
    """The origin of each of the ledgers, which version ``last`` of the log lists or an earlier one listed.

    Without those whose commit's record a vacuum removed. Raises NoSuchLogError; ConfigError where a vacuum removed a record
    that ``head`` still has.
    """
    wanted = set(ledger_ids)
    found: dict[int, Origin] = {}
    oldest, count = max(head.oldest_record, 1), _FIRST_LOOK
    while wanted and last >= oldest:
        first = max(oldest, last - count + 1)
        for commit, pages in reversed(list(reader.commits(head.name, uid, first, last))):
            added = {ledger.ledger_id: Origin(commit.version, commit.time_ms) for page in pages for ledger in page.ledgers}
            if commit.opened is not None:
                added[commit.opened] = Origin(commit.version, None)
            came = wanted & added.keys()
            found.update((ledger_id, added[ledger_id]) for ledger_id in came)
            wanted -= came
        last, count = first - 1, min(2 * count, READS_AT_ONCE)
    return found
