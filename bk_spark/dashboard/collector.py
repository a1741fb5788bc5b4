"""Reads what the page shows at a bounded rate, however many pages ask and however often.

One thread reads the cluster's state every two seconds and, through a few more threads, each bookie's figures. It keeps the
rates of the last five minutes, so that a newly opened page shows them at once. Ledgers and logs are read only when a page
shows them. If the store or a bookie does not answer, the last values stay, with their age (``snapshots.py``).

Every question is answered by a dict for JSON: ``value`` (None while nothing is known), ``age_s``, ``problem``, ``failing_s``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from bk_spark.bookkeeper import BookKeeper
from bk_spark.dashboard.bookies import absent_row, bookie_page, registered_row, space_of
from bk_spark.dashboard.cluster import LOST, RATES, READ_ONLY, WRITABLE, ClusterLook, look_at_bookie, look_at_cluster
from bk_spark.dashboard.ledgers import ledger_page, one_ledger
from bk_spark.dashboard.logs import LogView, log_page
from bk_spark.dashboard.mark_history import STEP_S, MarkHistory
from bk_spark.dashboard.rates import CounterHistory
from bk_spark.dashboard.snapshots import Record, Snapshot, Snapshots
from bk_spark.dashboard.space import cluster_space
from bk_spark.dashboard.tiers import TierView
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, NoSuchLedgerError, NoSuchLogError
from bk_spark.metadata.registration import RegisteredBookie

_Value = TypeVar("_Value")

PERIOD_S = 2.0
HISTORY = 150
"""Samples of the cluster's rates that are kept: five minutes."""

WAIT_S = 0.5
"""How long an answer waits for a new read before it gives the last value. A live store takes milliseconds."""

STALE_S = 30.0
"""Older figures of a bookie do not count in the cluster's sums."""

STORE_THREADS = 4
BOOKIE_THREADS = 8
"""A bookie that hangs takes one of them for as long as the client's ``read_timeout_s``."""

MAX_VIEWS = 64
"""Different ledgers, logs and pages of them that are kept at once."""

MAX_BOOKIES = 10_000


class Collector:
    """What the page shows of the cluster that ``client`` is connected to. Any thread may ask. ``start`` it, ``close`` it."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._tiers = TierView(client.logs)
        self._logs = LogView(client, self._tiers)
        self._clusters: Snapshots[ClusterLook] = Snapshots(1, 1, time.monotonic)
        self._views: Snapshots[Record] = Snapshots(STORE_THREADS, MAX_VIEWS, time.monotonic)
        self._bookies: Snapshots[Record] = Snapshots(BOOKIE_THREADS, MAX_BOOKIES, time.monotonic)
        self._counters: dict[str, CounterHistory] = {}
        self._marks = MarkHistory()
        self._history: tuple[tuple[float, Mapping[str, float | None]], ...] = ()
        self._cluster: Snapshot[ClusterLook] = Snapshot()
        self._figures: dict[str, Snapshot[Record]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bk_spark-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Wait until the collecting thread has ended. Call this before the client is closed."""
        self._stopped.set()
        self._thread.join()
        for snapshots in (self._clusters, self._views, self._bookies):
            snapshots.close()

    def overview(self) -> Record:
        """The cluster as a whole, and its rates of the last minutes."""
        return _answer(self._cluster, self._overview)

    def bookies(self) -> Record:
        """Every bookie, also the lost ones."""
        return _answer(self._cluster, lambda cluster: {"rows": self._rows(cluster)})

    def bookie(self, bookie_id: str) -> Record:
        """All that is known of one bookie, and what to do about it."""
        return _answer(self._cluster, lambda cluster: bookie_page(cluster, bookie_id, self._figures))

    def under_replicated(self) -> Record:
        """The marks, ascending by ledger."""
        return _answer(self._cluster, _marks)

    def ledgers(self, after: int, limit: int, state: str, bookie: str = "") -> Record:
        """A page of ledgers with ids above ``after``; ``state`` is one of ``STATES``, ``bookie`` one that they name."""
        asked = (after, limit, state, bookie)
        return self._view(("ledgers", *asked), lambda: ledger_page(self._client, *asked))

    def ledger(self, ledger_id: int) -> Record:
        cluster = self._cluster.value
        modes = cluster.modes() if cluster is not None else {}
        return self._view(("ledger", ledger_id), lambda: one_ledger(self._client, ledger_id, modes))

    def logs(self, after: str, limit: int) -> Record:
        """A page of logs with names above ``after``."""
        return self._view(("logs", after, limit), lambda: log_page(self._client, self._tiers, after, limit))

    def log(self, name: str) -> Record:
        return self._view(("log", name), lambda: self._logs.look_at(name))

    def _view(self, key: Hashable, read: Callable[[], Record]) -> Record:
        return _answer(self._views.look(key, lambda: _or_absent(read), WAIT_S), lambda value: value)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._collect()
            self._stopped.wait(PERIOD_S)

    def _collect(self) -> None:
        """Read the cluster once and, without waiting for them, its bookies."""
        self._cluster = self._clusters.look("cluster", lambda: look_at_cluster(self._client), WAIT_S)
        registered = self._cluster.value.registered if self._cluster.value is not None else ()
        self._counters = {one.bookie_id: self._counters.get(one.bookie_id) or CounterHistory() for one in registered}
        self._figures = {one.bookie_id: self._look_at(one, self._counters[one.bookie_id]) for one in registered}
        if self._cluster.value is not None and not self._cluster.problem:
            are_all = not self._cluster.value.marks_known.why_not
            self._marks.add(self._cluster.value.marked, time.monotonic(), are_all=are_all)
        self._history = (*self._history, (time.monotonic(), self._total_rates()))[-HISTORY:]

    def _look_at(self, bookie: RegisteredBookie, counters: CounterHistory) -> Snapshot[Record]:
        return self._bookies.look(bookie.bookie_id, lambda: look_at_bookie(self._client, bookie, counters, time.monotonic), 0.0)

    def _fresh_figures(self) -> dict[str, dict[str, Any]]:
        """Bookie → its figures, if they are not too old to count in sums."""
        found = self._figures.items()
        return {
            name: one.value for name, one in found if one.value is not None and one.age_s is not None and one.age_s < STALE_S
        }

    def _total_rates(self) -> dict[str, float | None]:
        """Sums over the bookies whose rates are known; None if there is none."""
        figures = self._fresh_figures().values()
        rates = {field: [one[field] for one in figures if one[field] is not None] for field in RATES}
        return {field: sum(known) if known else None for field, known in rates.items()}

    def _overview(self, cluster: ClusterLook) -> Record:
        figures = self._fresh_figures()
        modes = list(cluster.modes().values())
        now_s, history = time.monotonic(), self._history
        return {
            "metadata": self._client.metadata_store.uri,
            "instance_id": cluster.instance_id,
            **{name: modes.count(mode) for name, mode in (("writable", WRITABLE), ("read_only", READ_ONLY), ("lost", LOST))},
            "space": asdict(cluster_space([space_of(name, one) for name, one in figures.items()])),
            "zookeeper": {**asdict(self._client.metadata_store.connection()), "read_s": cluster.read_s},
            "silent": sum(bool(one.problem) for one in self._figures.values()),
            "under_replicated": cluster.marked,
            "marks_known": asdict(cluster.marks_known),
            "marks": {"rows": self._marks.rows(now_s), "step_s": STEP_S, "known_s": self._marks.known_s(now_s)},
            "autorecovery_enabled": cluster.autorecovery_enabled,
            "auditor": cluster.auditor,
            "with_metrics": sum(one["metrics"] for one in figures.values()),
            "rates": history[-1][1] if history else {},
            "history": [[round(now_s - at_s, 1), *rates.values()] for at_s, rates in history],
            "history_of": list(RATES),
        }

    def _rows(self, cluster: ClusterLook) -> list[Record]:
        rows = [registered_row(one, self._figures.get(one.bookie_id)) for one in cluster.registered]
        rows += [absent_row(one) for one in cluster.absent]
        return sorted(rows, key=lambda row: str(row["id"]))


def _answer(found: Snapshot[_Value], record: Callable[[_Value], Record]) -> Record:
    return {"value": None if found.value is None else record(found.value), **found.about()}


def _or_absent(read: Callable[[], Record]) -> Record:
    """Something that does not exist, or cannot be decoded, is an answer and not a failure to read."""
    try:
        return read()
    except (NoSuchLedgerError, NoSuchLogError, ConfigError, CorruptionError, FormatVersionError) as absent:
        return {"absent": str(absent)}


def _marks(cluster: ClusterLook) -> Record:
    rows = [
        {
            "id": str(one.ledger_id),
            "missing": list(one.missing),
            "marked_ms": one.marked_ms,
            "worker": cluster.locks.get(one.ledger_id),
        }
        for one in cluster.marks
    ]
    return {
        "rows": rows,
        "count": cluster.marked,
        "enabled": cluster.autorecovery_enabled,
        "auditor": cluster.auditor,
        "known": asdict(cluster.marks_known),
        "lost": [name for name, mode in cluster.modes().items() if mode == LOST],
    }
