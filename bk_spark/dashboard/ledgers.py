"""Reads a page of ledgers, or one ledger, for the page. Passwords are left out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.dashboard.cluster import LOST
from bk_spark.dashboard.snapshots import Record
from bk_spark.errors import BookKeeperError, NoSuchLogError
from bk_spark.metadata.ledger_ids import ledger_pages
from bk_spark.metadata.ledger_metadata import LOG_TAG, LedgerMetadata, LedgerState
from bk_spark.metadata.under_replication import UnderReplication

MAX_PAGE = 500
"""Ledgers in one answer."""

MAX_ID = 2**63 - 1

MAX_SCANNED = 5000
"""Ledgers that one answer reads where it shows only those in one state. It may then end early, and says where to go on."""

MAX_FRAGMENTS = 500
"""The last fragments of a ledger, which are drawn."""

MAX_VALUE_CHARACTERS = 1000
"""Longer values of custom metadata are cut."""

UNREADABLE = "UNREADABLE"
"""Shown as the state of a ledger whose metadata cannot be decoded."""

STATES = ("", *(state.name for state in LedgerState), UNREADABLE)
"""The states that a page can be limited to; empty for all ledgers."""


def ledger_page(client: BookKeeper, after: int, limit: int, state: str, bookie: str = "") -> Record:
    """Up to ``limit`` ledgers with ids above ``after``; ``next`` is where to go on, None at the end.

    All of them, or those in one ``state``, or those that name one ``bookie``.

    Ids are texts, because a browser's numbers are exact only up to 2**53.
    """
    store, znodes = client.metadata_store, client.znodes
    ledgers = LedgerStore(store, znodes)
    ids = itertools.chain.from_iterable(ledger_pages(store, znodes, after))
    rows: list[Record] = []
    scanned, last = 0, after
    while len(rows) < limit and scanned < MAX_SCANNED and (batch := list(itertools.islice(ids, limit))):
        for ledger_id, found in zip(batch, ledgers.readable(batch), strict=True):
            if len(rows) == limit:
                break
            scanned, last = scanned + 1, ledger_id
            if found is not None and (not state or _state(found) == state) and (not bookie or _names(found, bookie)):
                rows.append(_row(ledger_id, found))
    has_more = next(iter(ledger_pages(store, znodes, last)), [])
    return {"rows": rows, "scanned": scanned, "next": str(last) if has_more else None}


def one_ledger(client: BookKeeper, ledger_id: int, modes: Mapping[str, str]) -> Record:
    """One ledger in full, with the modes of its bookies. Raises NoSuchLedgerError."""
    metadata = client.ledger_metadata(ledger_id)
    mark = UnderReplication(client.metadata_store, client.znodes).mark_of(ledger_id)
    return {
        **_row(ledger_id, metadata),
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest_type.name,
        "last_entry_id": metadata.last_entry_id,
        "custom": [_custom(key, value) for key, value in metadata.custom_metadata],
        "missing": [] if mark is None else list(mark.missing),
        "marked_ms": None if mark is None else mark.marked_ms,
        "log": _log_of(client, metadata),
        "drawn": _fragments(metadata),
        "bookies": [{"id": one, "mode": modes.get(one, LOST) if modes else "unknown"} for one in sorted(metadata.bookies)],
    }


def _row(ledger_id: int, found: LedgerMetadata | BookKeeperError) -> Record:
    if isinstance(found, BookKeeperError):
        return {"id": str(ledger_id), "state": _state(found), "problem": str(found)}
    return {
        "id": str(ledger_id),
        "state": _state(found),
        "entries": None if found.last_entry_id is None else found.last_entry_id + 1,
        "bytes": found.length if found.is_closed else None,
        "created_ms": found.created_ms,
        "fragments": len(found.fragments),
        "quorums": f"{found.ensemble_size} / {found.write_quorum} / {found.ack_quorum}",
        "ensemble": list(found.last_fragment.ensemble),
    }


def _state(found: LedgerMetadata | BookKeeperError) -> str:
    return UNREADABLE if isinstance(found, BookKeeperError) else found.state.name


def _names(found: LedgerMetadata | BookKeeperError, bookie: str) -> bool:
    """A ledger that cannot be decoded is shown for every bookie: it may name each of them."""
    return isinstance(found, BookKeeperError) or bookie in found.bookies


def _fragments(metadata: LedgerMetadata) -> list[Record]:
    """The last fragments. ``last`` is inclusive: None if the end is not known, below ``first`` if the fragment is empty."""
    ends = [one.first_entry_id - 1 for one in metadata.fragments[1:]] + [metadata.last_entry_id]
    drawn = list(zip(metadata.fragments, ends, strict=True))[-MAX_FRAGMENTS:]
    return [{"first": one.first_entry_id, "last": end, "ensemble": list(one.ensemble)} for one, end in drawn]


def _custom(key: str, value: bytes) -> Record:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    is_text = text.isprintable() and bool(text or not value)
    shown = text if is_text else value.hex()
    return {"key": key, "value": shown[:MAX_VALUE_CHARACTERS], "is_text": is_text, "bytes": len(value)}


def _log_of(client: BookKeeper, metadata: LedgerMetadata) -> str | None:
    """The name of the log that the ledger was written for; None if there is none, or it was deleted."""
    uid = metadata.custom(LOG_TAG)
    if uid is None or not uid.isalnum():
        return None
    try:
        return client.logs.names.head("", uid.decode()).name
    except NoSuchLogError:
        return None
