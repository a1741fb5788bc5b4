"""Reads, once, the state of the cluster from the metadata store, or the figures of one bookie from that bookie."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.copies import MarksKnown, marks_known
from bk_spark.dashboard.rates import CounterHistory, scrape
from bk_spark.dashboard.snapshots import Record, UnansweredError
from bk_spark.metadata.cookies import CookieFacts, all_cookies
from bk_spark.metadata.registration import RegisteredBookie, instance_id
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.replication.absent_bookies import AbsentBookie, absent_bookies
from bk_spark.replication.auditor_znodes import auditor_report, current_auditor
from bk_spark.wire.messages import AdminOperation, Status

MAX_MARKS = 1000
"""Marks that are read and shown; the page says if there are more. A lost bookie can leave a million."""

WRITABLE, READ_ONLY, LOST, NEW = "writable", "read-only", "lost", "never started"

RATES = {
    "adds_s": "bk_spark_bookie_added_entries_total",
    "reads_s": "bk_spark_bookie_read_entries_total",
    "added_bytes_s": "bk_spark_bookie_added_bytes_total",
    "read_bytes_s": "bk_spark_bookie_read_bytes_total",
}
"""Field of a bookie's figures → the counter whose rate it shows."""

P99 = {"add_p99_s": "bk_spark_bookie_add_seconds", "read_p99_s": "bk_spark_bookie_read_seconds"}
"""Field of a bookie's figures → the histogram whose 99th percentile it shows."""

FLAGS = ("failed", "limbo", "lapsed", "ids_given_out_again")
"""Figures of a bookie's status that are shown as yes or no."""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The cluster's state at one moment."""

    instance_id: str
    registered: tuple[RegisteredBookie, ...]
    absent: tuple[AbsentBookie, ...]
    """Bookies that a cookie or a mark names, and that are not registered: lost, or never started."""
    cookies: Mapping[str, CookieFacts]
    marks: tuple[Mark, ...]
    """The first ones, ascending by ledger."""
    marked: int
    """How many marks there are in all."""
    locks: dict[int, str]
    """Ledger → who re-replicates it now."""
    autorecovery_enabled: bool
    auditor: str | None
    marks_known: MarksKnown
    read_s: float
    """How long one read of a small value took."""

    def modes(self) -> dict[str, str]:
        """Bookie → its mode. A bookie that only a ledger names is missing here, and counts as lost too."""
        modes = {one.bookie_id: READ_ONLY if one.read_only else WRITABLE for one in self.registered}
        return {**{one.bookie_id: NEW if one.is_new else LOST for one in self.absent}, **modes}


def look_at_cluster(client: BookKeeper) -> ClusterLook:
    """Raises MetadataUnavailableError."""
    store, znodes = client.metadata_store, client.znodes
    began_s = time.monotonic()
    cluster_id = instance_id(store, znodes)
    read_s = time.monotonic() - began_s
    cookies = all_cookies(store, znodes)  # before the registrations: a bookie that comes up meanwhile is not taken for lost
    registered = tuple(client.list_bookies())
    under_replication = UnderReplication(store, znodes)
    marks = tuple(itertools.islice(under_replication.marks(), MAX_MARKS))
    enabled, auditor = under_replication.is_enabled(), current_auditor(store, znodes)
    report = auditor_report(store, znodes)
    return ClusterLook(
        instance_id=cluster_id,
        registered=registered,
        absent=absent_bookies({one.bookie_id for one in registered}, cookies, marks, report),
        cookies=cookies,
        marks=marks,
        marked=under_replication.count() if len(marks) == MAX_MARKS else len(marks),
        locks=under_replication.locks(),
        autorecovery_enabled=enabled,
        auditor=auditor,
        marks_known=marks_known(enabled, auditor, report),
        read_s=read_s,
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
        "directories": [{**asdict(one), "holds_entries": one.holds_entries} for one in description.directories],
        "why": status.detail,
        **{flag: bool(figures.get(flag)) for flag in FLAGS},
        "metrics": counters is not None,
        **{field: history.rate(counter) for field, counter in RATES.items()},
        **{field: history.quantile_s(histogram, 0.99) for field, histogram in P99.items()},
    }
