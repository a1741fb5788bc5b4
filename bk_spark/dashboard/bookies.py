"""Rows and the page of bookies, made of what was read of the cluster and of each bookie. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bk_spark.dashboard.advice import Recovery, about_absent, about_registered
from bk_spark.dashboard.cluster import LOST, NEW, READ_ONLY, WRITABLE, ClusterLook
from bk_spark.dashboard.snapshots import Record, Snapshot
from bk_spark.dashboard.space import BookieSpace, sharing
from bk_spark.host_port import HostPort
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.metadata.under_replication import Mark
from bk_spark.replication.absent_bookies import AbsentBookie
from bk_spark.wire.messages import BookieDirectory

WHY_LOST = "it is not registered: it does not run, or does not reach the metadata store"
WHY_NEW = "it was formatted and never started"
WHY_REMOVED = "it was removed from the cluster, and ledgers still name it"

MAX_MARKED = 20
"""Under-replicated ledgers that are listed on a bookie's page; the others are counted."""

_PARTS = ("path", "uses", "file_system", "free_bytes", "total_bytes")


def registered_row(bookie: RegisteredBookie, figures: Snapshot[Record] | None) -> Record:
    """A registered bookie in the table of bookies; ``figures`` are its own, None while nothing was asked."""
    return {name: value for name, value in _registered(bookie, figures).items() if name != "directories"}


def absent_row(bookie: AbsentBookie) -> Record:
    facts = {name: value for name, value in asdict(bookie).items() if name != "bookie_id"}
    why = WHY_NEW if bookie.is_new else WHY_LOST if bookie.has_cookie else WHY_REMOVED
    return {"id": bookie.bookie_id, "mode": NEW if bookie.is_new else LOST, "why": why, **facts}


def bookie_page(cluster: ClusterLook, bookie_id: str, figures: Mapping[str, Snapshot[Record]]) -> Record:
    """Everything about one bookie; with ``absent`` if neither a registration nor a cookie nor a mark names it."""
    registered = next((one for one in cluster.registered if one.bookie_id == bookie_id), None)
    absent = next((one for one in cluster.absent if one.bookie_id == bookie_id), None)
    if registered is not None:
        row = _registered(registered, figures.get(bookie_id))
        advice = about_registered(bookie_id, row)
    elif absent is not None:
        row = absent_row(absent)
        advice = about_absent(absent, Recovery(cluster.autorecovery_enabled, cluster.auditor is not None))
    else:
        return {"absent": f"there is no bookie {bookie_id!r}: no registration, no cookie and no mark names it"}
    cookie = cluster.cookies.get(bookie_id)
    return {
        **row,
        "cookie": None if cookie is None else asdict(cookie),
        "shared": sharing([space_of(name, one.value) for name, one in figures.items() if one.value is not None]),
        "advice": [asdict(one) for one in advice],
        **_marked(bookie_id, cluster),
    }


def space_of(bookie_id: str, figures: Mapping[str, Any]) -> BookieSpace:
    """What a bookie's figures say of its disks."""
    directories = tuple(BookieDirectory(*(one[part] for part in _PARTS)) for one in figures["directories"])
    return BookieSpace(bookie_id, figures["free_bytes"], figures["total_bytes"], directories)


def _registered(bookie: RegisteredBookie, figures: Snapshot[Record] | None) -> Record:
    found: Snapshot[Record] = figures or Snapshot()
    address = bookie.address
    return {
        "id": bookie.bookie_id,
        "mode": READ_ONLY if bookie.read_only else WRITABLE,
        "registered_ms": bookie.registered_ms,
        "is_apache": bookie.is_apache,
        "address": str(address.place),
        "apache_address": None if address.apache is None else str(HostPort(address.host, address.apache.port)),
        "apache_tls": address.apache is not None and address.apache.has_tls,
        "rack": bookie.rack,
        "metrics_address": bookie.http,
        **(found.value or {}),
        **found.about(),
    }


def _marked(bookie_id: str, cluster: ClusterLook) -> Record:
    """The marks that name the bookie, of those that were read."""
    marked = [one for one in cluster.marks if bookie_id in one.missing]
    return {
        "marked": len(marked),
        "marks_unread": cluster.marked - len(cluster.marks),
        "marked_ledgers": [_mark(one) for one in marked[:MAX_MARKED]],
    }


def _mark(mark: Mark) -> Record:
    return {"id": str(mark.ledger_id), "marked_ms": mark.marked_ms}
