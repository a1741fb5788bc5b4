"""Reads a page of logs, or one log with its ledgers, its commits, and the streams that read it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.snapshots import Record
from bk_spark.dashboard.tiers import HeldLog, TierView
from bk_spark.errors import ConfigError
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.names import decode_name
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL, LogPaths
from bk_spark.log.stored.values import Head, LogVersion, Totals
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.follow import LogFollower
from bk_spark.log.stream.order import FAIL

MAX_PAGE = 500
"""Logs in one answer."""

MAX_DRAWN = 400
"""The last closed ledgers of a log, which are drawn; the earlier ones are one sum."""

COMMITS = 20
MAX_CURSORS = 100

MAX_LISTINGS = 8
"""Listings that are kept, so that of a log only the commits since the last look are read."""


def log_page(client: BookKeeper, tiers: TierView, after: str, limit: int) -> Record:
    """Up to ``limit`` logs with names above ``after``; ``next`` is where to go on, None at the end."""
    names = client.list_logs()
    start = bisect.bisect_right(names, after) if after else 0
    wanted = names[start : start + limit]
    logs = _held(client, wanted)
    found = tiers.of(logs)
    return {
        "rows": [_row(name, one.head, found.get(name)) for name, one in logs.items()],
        "count": len(names),
        "next": wanted[-1] if start + limit < len(names) else None,
    }


class LogView:
    """Reads one log at a time, and keeps the listings of the last ones. Only one thread at a time may ask for the same log."""

    def __init__(self, client: BookKeeper, tiers: TierView) -> None:
        self._client = client
        self._tiers = tiers
        self._listings: dict[str, tuple[int, Listing]] = {}

    def look_at(self, name: str) -> Record:
        """Raises NoSuchLogError, and ConfigError for an invalid name."""
        logs = self._client.logs
        uid = logs.names.uid(name)
        head = logs.names.head(name, uid)
        listing = self._listing(name, uid, head)
        first = max(head.oldest_record, 1, head.version - COMMITS + 1)
        commits = logs.reader.versions(name, uid, first, head.version)
        return {
            **_row(name, head, self._tiers.of({name: HeldLog(uid, head)}).get(name)),
            "uid": uid,
            "oldest_version": head.oldest_version,
            "first_row": head.first_row,
            "end_row": head.end_row,
            "retention": {
                "versions_s": head.retention.version_retention_s,
                "rows_s": head.retention.retention_s,
                "bytes": head.retention.retention_bytes,
            },
            **_drawn(listing, head),
            "commits": [_commit(one) for one in commits][::-1],
            "streams": self._streams(name, uid, head),
        }

    def _listing(self, name: str, uid: str, head: Head) -> Listing:
        listing = self._read_listing(name, uid, head, self._listings.pop(uid, None))
        self._listings[uid] = (head.version, listing)
        while len(self._listings) > MAX_LISTINGS:
            del self._listings[next(iter(self._listings))]
        return listing

    def _read_listing(self, name: str, uid: str, head: Head, known: tuple[int, Listing] | None) -> Listing:
        """Only the commits since the last look, unless they are so many that a checkpoint is nearer, or some are gone."""
        reader = self._client.logs.reader
        if head.version == 0:
            return Listing()
        if known is not None and max(head.oldest_record, head.version - CHECKPOINT_INTERVAL) <= known[0] + 1:
            return known[1] if known[0] == head.version else reader.advanced(name, uid, known, head.version)
        return reader.listing(name, uid, head.version)

    def _streams(self, name: str, uid: str, head: Head) -> list[Record]:
        client = self._client
        follower = LogFollower(client.logs.reader, name, uid, FAIL, client.existing_ledgers)
        return [_stream(one, head, follower) for one in client.logs.cursors.all(name, uid)[:MAX_CURSORS]]


def _held(client: BookKeeper, names: Sequence[str]) -> dict[str, HeldLog]:
    """Without logs that do not exist any more or are being deleted."""
    store, znodes = client.metadata_store, client.znodes
    pointers = zip(names, store.get_many([znodes.log_name(name) for name in names]), strict=True)
    uids = {name: decode_name(f"the name of log '{name}'", found.value) for name, found in pointers if found is not None}
    stored = zip(uids.items(), store.get_many([LogPaths(znodes.log(uid)).head for uid in uids.values()]), strict=True)
    heads = (
        (name, HeldLog(uid, Head.decode(f"the head of log '{name}'", found.value)))
        for (name, uid), found in stored
        if found is not None
    )
    return {name: one for name, one in heads if not one.head.deleting}


def _row(name: str, head: Head, tier: Record | None) -> Record:
    return {
        "name": name,
        "content": None if head.content is None else head.content.value,
        "version": head.version,
        "committed_ms": head.time_ms,
        "ledgers": head.total.ledgers,
        "open": len(head.writer.open_ledgers),
        "rows": head.total.rows,
        "bytes": head.total.length,
        "tier": tier,
    }


def _drawn(listing: Listing, head: Head) -> Record:
    """``head`` has the sum of what the listing has."""
    drawn = listing.closed[-MAX_DRAWN:]
    earlier = head.total - Totals.of(drawn)
    return {
        "drawn": [
            {"id": str(one.ledger_id), "entries": one.last_entry_id + 1, "rows": one.rows, "bytes": one.length} for one in drawn
        ],
        "drawn_open": [{"id": str(one.ledger_id), "version": one.version} for one in listing.open],
        "earlier": {"ledgers": earlier.ledgers, "rows": earlier.rows, "bytes": earlier.length},
    }


def _commit(version: LogVersion) -> Record:
    return {
        "version": version.version,
        "time_ms": version.time_ms,
        "kind": version.kind.value,
        "rows": version.added.rows + sum(one.rows for one in version.closed),
        "opened": version.opened is not None,
        "added": version.added.ledgers + (version.opened is not None),
        "removed": version.removed.ledgers,
        "application": None if version.application is None else f"{version.application[0]}:{version.application[1]}",
    }


def _stream(published: Cursor, head: Head, follower: LogFollower) -> Record:
    """The stream's row number is taken from the log as it is now, because the stream published what it knew then."""
    try:
        cursor = replace(published, row=follower.row_number(published.position, head))
    except ConfigError:
        cursor = published  # its version's record was vacuumed
    unread = follower.unread(cursor.position, head)
    return {
        "name": cursor.name,
        "lag_rows": cursor.lag(head),
        "lag_bytes": None if unread is None else unread.nbytes,
        "unread_since_ms": None if unread is None else unread.since_ms,
        "ledger_id": None if cursor.position.is_behind else str(cursor.position.ledger_id),
        "entry_id": cursor.position.entry_id,
        "version": cursor.position.version,
        "updated_ms": cursor.time_ms,
    }
