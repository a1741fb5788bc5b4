"""One look at the cluster as the metadata store knows it: who is registered, who is missing, what lacks copies."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.replication.auditor_znodes import current_auditor
from bk_spark.dashboard.rates import CounterHistory, scrape
from bk_spark.dashboard.snapshots import UnansweredError
from bk_spark.metadata.registration import RegisteredBookie, instance_id
from bk_spark.metadata.store import NoNodeError
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.wire.messages import AdminOperation, Status

MAX_MARKS = 1000
"""Marks that are read and shown: of more, the page says that there are more. A lost bookie can leave a million."""

WRITABLE, READ_ONLY, LOST = "writable", "read-only", "lost"


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What one look found."""

    instance_id: str
    registered: tuple[RegisteredBookie, ...]
    lost: tuple[str, ...]
    """Bookies that a cookie or a mark names, and that are not registered."""
    marks: tuple[Mark, ...]
    """The first ones, ascending by ledger."""
    marked: int
    """How many there are in all."""
    locks: dict[int, str]
    """Ledger → who works on its copies now."""
    autorecovery_enabled: bool
    auditor: str | None
    """Who is elected; None for nobody."""

    def modes(self) -> dict[str, str]:
        """Bookie → how it is. One that only a ledger names is not here, and as lost as the others."""
        modes = {one.bookie_id: READ_ONLY if one.read_only else WRITABLE for one in self.registered}
        return {**dict.fromkeys(self.lost, LOST), **modes}


def look_at_cluster(client: BookKeeper) -> ClusterLook:
    """Raises MetadataUnavailableError."""
    store, znodes = client.metadata_store, client.znodes
    registered = tuple(client.list_bookies())
    under = UnderReplication(store, znodes)
    marks = tuple(itertools.islice(under.marks(), MAX_MARKS))
    named = {bookie_id for mark in marks for bookie_id in mark.missing}
    with contextlib.suppress(NoNodeError):  # no bookie was ever formatted
        named |= set(store.children(znodes.cookies))
    present = {one.bookie_id for one in registered}
    return ClusterLook(
        instance_id(store, znodes),
        registered,
        tuple(sorted(named - present)),
        marks,
        under.count() if len(marks) == MAX_MARKS else len(marks),
        under.locks(),
        under.is_enabled(),
        current_auditor(store, znodes),
    )


# --- One look at one bookie: what it says of itself, and what its counters say of the last seconds

Record = dict[str, object]

ADDED_ENTRIES = "bk_spark_bookie_added_entries_total"
ADDED_BYTES = "bk_spark_bookie_added_bytes_total"
READ_ENTRIES = "bk_spark_bookie_read_entries_total"
READ_BYTES = "bk_spark_bookie_read_bytes_total"
ADD_S = "bk_spark_bookie_add_seconds"
READ_S = "bk_spark_bookie_read_seconds"

RATES = {
    "adds_s": ADDED_ENTRIES,
    "reads_s": READ_ENTRIES,
    "added_bytes_s": ADDED_BYTES,
    "read_bytes_s": READ_BYTES,
}
"""Field of a record → the counter that it is the rate of."""

P99 = 0.99


def look_at(client: BookKeeper, bookie: RegisteredBookie, history: CounterHistory, clock: Callable[[], float]) -> Record:
    """Raises UnansweredError."""
    description = client.describe_bookie(bookie.bookie_id)
    if description is None:
        raise UnansweredError("it does not answer")
    status = client.administer_bookie(bookie.bookie_id, AdminOperation.BOOKIE_STATUS)
    figures = status.figures if status.status is Status.OK else {}
    return {
        "free_bytes": description.free_bytes,
        "total_bytes": description.total_bytes,
        "version": description.program_version,
        "why": status.detail,
        "failed": bool(figures.get("failed")),
        "limbo": bool(figures.get("limbo")),
        **_rates(bookie.http, history, clock()),
    }


def _rates(address: str | None, history: CounterHistory, now_s: float) -> Record:
    counters = scrape(address, now_s) if address else None
    if counters is not None:
        history.add(counters)
    known = history if counters is not None else CounterHistory()
    return {
        "metrics": counters is not None,
        **{field: known.rate(counter) for field, counter in RATES.items()},
        "add_p99_s": known.quantile_s(ADD_S, P99),
        "read_p99_s": known.quantile_s(READ_S, P99),
    }
