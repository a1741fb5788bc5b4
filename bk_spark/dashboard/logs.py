"""One look at a page of logs, or at one log: its ledgers, commits, and the streams that read it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.log.stored.listing import Listing
from bk_spark.client.log.stored.names import decode_name
from bk_spark.client.log.stored.paths import LogPaths
from bk_spark.client.log.stored.values import Head, LogVersion, Totals
from bk_spark.client.log.stream.cursors import Cursor
from bk_spark.client.log.stream.follow import LogFollower
from bk_spark.client.log.stream.order import FAIL
from bk_spark.errors import ConfigError

Record = dict[str, object]

MAX_PAGE = 500
"""Logs in one answer."""

MAX_DRAWN = 400
"""Closed ledgers of one log that are drawn, the last ones; those before them are one sum."""

COMMITS = 20
MAX_CURSORS = 100

MAX_LISTINGS = 8
"""Listings that are kept, so that a log is read anew only where it changed."""


def log_page(client: BookKeeper, after: str, limit: int) -> Record:
    """Up to ``limit`` logs with names above ``after``; ``next``: where to go on, None at the end."""
    names = client.list_logs()
    start = bisect.bisect_right(names, after) if after else 0
    wanted = names[start : start + limit]
    heads = _heads(client, wanted)
    return {
        "rows": [_row(name, head) for name, head in zip(wanted, heads, strict=True) if head is not None],
        "count": len(names),
        "next": wanted[-1] if start + limit < len(names) else None,
    }


class LogView:
    """One log at a time, with the listings of those that were looked at last. One thread at a time may ask for a log."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._listings: dict[str, tuple[int, Listing]] = {}

    def look_at(self, name: str) -> Record:
        """Raises NoSuchLogError, ConfigError for what cannot be a name."""
        logs = self._client.logs
        uid = logs.names.uid(name)
        head = logs.names.head(name, uid)
        listing = self._listing(name, uid, head)
        first = max(head.oldest_record, 1, head.version - COMMITS + 1)
        commits = logs.reader.versions(name, uid, first, head.version)
        return {
            **_row(name, head),
            "uid": uid,
            "oldest_version": head.oldest_version,
            "first_row": head.first_row,
            "end_row": head.end_row,
            "retention": _retention(head),
            **_drawn(listing),
            "commits": [_commit(one) for one in commits][::-1],
            "streams": self._streams(name, uid, head),
        }

    def _listing(self, name: str, uid: str, head: Head) -> Listing:
        known = self._listings.pop(uid, None)
        reader = self._client.logs.reader
        if known is not None and known[0] == head.version:
            listing = known[1]
        elif head.version == 0:
            listing = Listing()
        else:
            listing = reader.listing(name, uid, head.version)
        self._listings[uid] = (head.version, listing)
        while len(self._listings) > MAX_LISTINGS:
            del self._listings[next(iter(self._listings))]
        return listing

    def _streams(self, name: str, uid: str, head: Head) -> list[Record]:
        client = self._client
        follower = LogFollower(client.logs.reader, name, uid, FAIL, client.existing_ledgers)
        return [_stream(one, head, follower) for one in client.logs.cursors.all(name, uid)[:MAX_CURSORS]]


def _heads(client: BookKeeper, names: Sequence[str]) -> list[Head | None]:
    """In their order; None for a log that is gone, or is being deleted."""
    store, znodes = client.metadata_store, client.znodes
    pointers = store.get_many([znodes.log_name(name) for name in names])
    uids = [
        None if found is None else decode_name(f"the name of log '{name}'", found.value)
        for name, found in zip(names, pointers, strict=True)
    ]
    paths = [LogPaths(znodes.log(uid)).head if uid else znodes.log_data for uid in uids]
    found = store.get_many(paths)
    heads = [
        None if uid is None or value is None else Head.decode(f"the head of log '{name}'", value.value)
        for name, uid, value in zip(names, uids, found, strict=True)
    ]
    return [None if head is None or head.deleting else head for head in heads]


def _row(name: str, head: Head) -> Record:
    return {
        "name": name,
        "content": None if head.content is None else head.content.value,
        "version": head.version,
        "committed_ms": head.time_ms,
        "ledgers": head.total.ledgers,
        "open": len(head.writer.open_ledgers),
        "rows": head.total.rows,
        "bytes": head.total.length,
    }


def _retention(head: Head) -> Record:
    kept = head.retention
    return {"versions_s": kept.version_retention_s, "rows_s": kept.retention_s, "bytes": kept.retention_bytes}


def _drawn(listing: Listing) -> Record:
    drawn = listing.closed[-MAX_DRAWN:]
    earlier = Totals.of(listing.closed[: len(listing.closed) - len(drawn)])
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
        "added": version.added.ledgers + (version.opened is not None),
        "removed": version.removed.ledgers,
        "application": None if version.application is None else f"{version.application[0]}:{version.application[1]}",
    }


def _stream(published: Cursor, head: Head, follower: LogFollower) -> Record:
    """Its row number as the log knows it now: the stream published what was known then."""
    try:
        cursor = replace(published, row=follower.row_number(published.position, head))
    except ConfigError:
        cursor = published  # its version's record was vacuumed
    return {
        "name": cursor.name,
        "lag_rows": cursor.lag(head),
        "ledger_id": None if cursor.position.is_behind else str(cursor.position.ledger_id),
        "entry_id": cursor.position.entry_id,
        "version": cursor.position.version,
        "updated_ms": cursor.time_ms,
    }
