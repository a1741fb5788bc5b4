"""``bk-spark bookie list`` and ``bk-spark cookie list``: all bookies of a cluster, the lost ones among them."""

from __future__ import annotations

import argparse
import itertools
import time

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.arguments import Commands, command
from bk_spark.commands.connect import bookkeeper, metadata_store
from bk_spark.commands.output import Record, print_records, readable
from bk_spark.metadata.cookies import CookieFacts, all_cookies
from bk_spark.metadata.registration import RegisteredBookie, list_bookies
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.absent_bookies import AbsentBookie, absent_bookies
from bk_spark.replication.auditor_znodes import auditor_report
from bk_spark.wire.messages import AdminOperation

WRITABLE, READ_ONLY, LOST, NEW = "writable", "read-only", "lost", "never started"

UNKNOWN = "unknown"
"""Printed where nothing tells since when."""

MARKS_READ = 10_000
"""Of a million that a lost bookie can leave. More could only tell an earlier time, or of a bookie without a cookie."""

_BOOKIES = ["bookie_id", "address", "kind", "rack", "mode", "since", "http", "free", "answers", "why"]
_COOKIES = ["bookie_id", "kind", "boot", "directories", "changed", "mode"]


def add_list(group: Commands) -> None:
    text = "the cluster's bookies, Apache's among them: writable, read-only (and why) and lost ones, with free space"
    parser = command(group, "list", text, _list)
    parser.description = (
        "The bookies that are registered, those that are lost, because a cookie or an under-replicated ledger names them, and "
        "those that were never started. SINCE is when a bookie was registered in its mode. The end of a registration is not "
        "recorded. So for a lost bookie it says 'after' its last sign of life, which bk_spark's bookies give once a minute, or "
        "'before' the first of its ledgers was found to lack copies, or 'unknown'."
    )


def add_cookie_list(group: Commands) -> None:
    command(group, "list", "every bookie that was formatted and not removed, with its last sign of life", _list_cookies)


def _list(args: argparse.Namespace) -> None:
    with bookkeeper(args) as client:
        # Before the registrations, so that no bookie that comes up meanwhile is taken for lost.
        cookies = all_cookies(client.metadata_store, client.znodes)
        registered = client.list_bookies()
        records = [_registered(client, bookie, as_json=args.json) for bookie in registered]
        records += [_unregistered(bookie, as_json=args.json) for bookie in _absent(client, cookies, registered)]
        print_records(records, _BOOKIES, as_json=args.json)


def _absent(
    client: BookKeeper, cookies: dict[str, CookieFacts], registered: list[RegisteredBookie]
) -> tuple[AbsentBookie, ...]:
    store, znodes = client.metadata_store, client.znodes
    ids = {bookie.bookie_id for bookie in registered}
    marks = itertools.islice(UnderReplication(store, znodes).marks(), MARKS_READ)
    return absent_bookies(ids, cookies, marks, auditor_report(store, znodes))


def _registered(client: BookKeeper, bookie: RegisteredBookie, *, as_json: bool) -> Record:
    description = client.describe_bookie(bookie.bookie_id)
    free = description.free_bytes if description else None
    record = {
        "bookie_id": bookie.bookie_id,
        "address": str(bookie.address.place),
        "kind": "Apache" if bookie.is_apache else "bk_spark",
        "rack": bookie.rack,
        "mode": READ_ONLY if bookie.read_only else WRITABLE,
        "http": bookie.http,
        "answers": description is not None,
        "why": _why_read_only(client, bookie) if bookie.read_only and description is not None else None,
    }
    if as_json:
        return {**record, "free": free, "registered_ms": bookie.registered_ms, "last_seen_ms": None, "marked_ms": None}
    return {**record, "free": None if free is None else readable(free), "since": _utc(bookie.registered_ms)}


def _why_read_only(client: BookKeeper, bookie: RegisteredBookie) -> str | None:
    """Why a bookie that answers is registered as read-only; None if one of Apache's, which tells nobody."""
    if bookie.is_apache:
        return None
    reply = client.administer_bookie(bookie.bookie_id, AdminOperation.BOOKIE_STATUS)
    moves = "the bookie takes adds: a decommission keeps writers away, or its registration is about to move"
    return reply.detail or moves


def _unregistered(bookie: AbsentBookie, *, as_json: bool) -> Record:
    record = dict.fromkeys(_BOOKIES) | {"bookie_id": bookie.bookie_id, "mode": NEW if bookie.is_new else LOST, "answers": False}
    if as_json:
        times = {"registered_ms": None, "last_seen_ms": bookie.last_seen_ms, "marked_ms": bookie.marked_ms}
        return {**{name: value for name, value in record.items() if name != "since"}, **times, "has_cookie": bookie.has_cookie}
    return {**record, "since": None if bookie.is_new else _lost_since(bookie)}


def _lost_since(bookie: AbsentBookie) -> str:
    if bookie.last_seen_ms is not None:
        return f"after {_utc(bookie.last_seen_ms)}"
    return UNKNOWN if bookie.marked_ms is None else f"before {_utc(bookie.marked_ms)}"


def _list_cookies(args: argparse.Namespace) -> None:
    with metadata_store(args) as (store, znodes):
        cookies = all_cookies(store, znodes)
        modes = {one.bookie_id: READ_ONLY if one.read_only else WRITABLE for one in list_bookies(store, znodes)}
        records = [_cookie(one, modes.get(name), as_json=args.json) for name, one in cookies.items()]
        print_records(records, _COOKIES, as_json=args.json)


def _cookie(cookie: CookieFacts, registered: str | None, *, as_json: bool) -> Record:
    """A cookie without bk_spark's lines is one of Apache's, or of another tool that has rewritten it."""
    mode = registered or (NEW if cookie.boot == 0 else LOST)
    is_ours = cookie.boot is not None
    record = {"bookie_id": cookie.bookie_id, "kind": "bk_spark" if is_ours else "other", "boot": cookie.boot, "mode": mode}
    record["directories"] = cookie.directories if is_ours else None
    if as_json:
        return {**record, "epoch": cookie.epoch, "changed_ms": cookie.changed_ms, "last_seen_ms": cookie.last_seen_ms}
    return {**record, "changed": _utc(cookie.changed_ms)}


def _utc(at_ms: int | None) -> str:
    return UNKNOWN if at_ms is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
