"""Reads, once, the state of the cluster from the metadata store, or the figures of one bookie from that bookie."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.replication.auditor_znodes import current_auditor
from bk_spark.dashboard.rates import CounterHistory, scrape
from bk_spark.dashboard.snapshots import Record, UnansweredError
from bk_spark.metadata.registration import RegisteredBookie, instance_id
from bk_spark.metadata.store import NoNodeError
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.wire.messages import AdminOperation, Status

MAX_MARKS = 1000
"""Marks that are read and shown; the page says if there are more. A lost bookie can leave a million."""

WRITABLE, READ_ONLY, LOST = "writable", "read-only", "lost"

RATES = {
    "adds_s": "bk_spark_bookie_added_entries_total",
    "reads_s": "bk_spark_bookie_read_entries_total",
    "added_bytes_s": "bk_spark_bookie_added_bytes_total",
    "read_bytes_s": "bk_spark_bookie_read_bytes_total",
}
"""Field of a bookie's figures → the counter whose rate it shows."""

P99 = {"add_p99_s": "bk_spark_bookie_add_seconds", "read_p99_s": "bk_spark_bookie_read_seconds"}
"""Field of a bookie's figures → the histogram whose 99th percentile it shows."""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The cluster's state at one moment."""

    instance_id: str
    registered: tuple[RegisteredBookie, ...]
    lost: tuple[str, ...]
    """Bookies that a cookie or a mark names, and that are not registered."""
    marks: tuple[Mark, ...]
    """The first ones, ascending by ledger."""
    marked: int
    """How many marks there are in all."""
    locks: dict[int, str]
    """Ledger → who re-replicates it now."""
    autorecovery_enabled: bool
    auditor: str | None

    def modes(self) -> dict[str, str]:
        """Bookie → its mode. A bookie that only a ledger names is missing here, and counts as lost too."""
        modes = {one.bookie_id: READ_ONLY if one.read_only else WRITABLE for one in self.registered}
        return {**dict.fromkeys(self.lost, LOST), **modes}


def look_at_cluster(client: BookKeeper) -> ClusterLook:
    """Raises MetadataUnavailableError."""
    store, znodes = client.metadata_store, client.znodes
    registered = tuple(client.list_bookies())
    under_replication = UnderReplication(store, znodes)
    marks = tuple(itertools.islice(under_replication.marks(), MAX_MARKS))
    named = {bookie_id for mark in marks for bookie_id in mark.missing}
    with contextlib.suppress(NoNodeError):  # no bookie was ever formatted
        named |= set(store.children(znodes.cookies))
    return ClusterLook(
        instance_id(store, znodes),
        registered,
        tuple(sorted(named - {one.bookie_id for one in registered})),
        marks,
        under_replication.count() if len(marks) == MAX_MARKS else len(marks),
        under_replication.locks(),
        under_replication.is_enabled(),
        current_auditor(store, znodes),
    )


def look_at_bookie(client: BookKeeper, bookie: RegisteredBookie, history: CounterHistory, clock: Callable[[], float]) -> Record:
    """A bookie's own description and status, with the rates of its counters. Raises UnansweredError."""
    description = client.describe_bookie(bookie.bookie_id)
    if description is None:
        raise UnansweredError("it does not answer")
    status = client.administer_bookie(bookie.bookie_id, AdminOperation.BOOKIE_STATUS)
    figures = status.figures if status.status is Status.OK else {}
    counters = scrape(bookie.http, clock()) if bookie.http else None
    if counters is None:
        history = CounterHistory()  # old counters say nothing about now
    else:
        history.add(counters)
    return {
        "free_bytes": description.free_bytes,
        "total_bytes": description.total_bytes,
        "version": description.program_version,
        "why": status.detail,
        "failed": bool(figures.get("failed")),
        "limbo": bool(figures.get("limbo")),
        "metrics": counters is not None,
        **{field: history.rate(counter) for field, counter in RATES.items()},
        **{field: history.quantile_s(histogram, 0.99) for field, histogram in P99.items()},
    }
