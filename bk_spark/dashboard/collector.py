"""What the page shows, collected at a bounded rate, whoever asks and how often.

One thread looks at the cluster every two seconds: who is registered, what is marked, and, through a few more threads, each
bookie. It keeps the rates of the last five minutes, so that a page that is opened shows them at once. Ledgers and logs are read
when somebody looks at them. A store or bookie that does not answer leaves what was known, with its age.

Every method gives a dict that JSON can take: ``value`` (None while nothing is known), ``age_s``, ``problem``, ``failing_s``.

Ref: snapshots.py for the rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, cast

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.dashboard.cluster import LOST, RATES, READ_ONLY, WRITABLE, ClusterLook, Record, look_at, look_at_cluster
from bk_spark.dashboard.ledgers import ledger_page, one_ledger
from bk_spark.dashboard.logs import LogView, log_page
from bk_spark.dashboard.rates import CounterHistory
from bk_spark.dashboard.snapshots import Snapshot, Snapshots
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, NoSuchLedgerError, NoSuchLogError
from bk_spark.metadata.registration import RegisteredBookie

_Value = TypeVar("_Value")

PERIOD_S = 2.0
HISTORY = 150
"""Samples of the cluster's rates that are kept: five minutes."""

WAIT_S = 0.5
"""How long an answer waits for a new read before it gives what was known. A live store takes milliseconds."""

STALE_S = 30.0
"""Figures of a bookie that are older do not count in the cluster's sums."""

STORE_THREADS = 4
BOOKIE_THREADS = 8
"""A bookie that hangs takes one of them for as long as the client's ``read_timeout_s``."""

MAX_VIEWS = 64
"""Different ledgers, logs and pages of them that are kept at once."""

MAX_BOOKIES = 10_000

WHY_LOST = "it is not registered: it does not run, or does not reach the metadata store"


class Collector:
    """The figures of the cluster that ``client`` is connected to. Any thread may ask. ``start`` it, ``close`` it."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._logs = LogView(client)
        self._clusters: Snapshots[ClusterLook] = Snapshots(1, 1, time.monotonic)
        self._views: Snapshots[Record] = Snapshots(STORE_THREADS, MAX_VIEWS, time.monotonic)
        self._bookies: Snapshots[Record] = Snapshots(BOOKIE_THREADS, MAX_BOOKIES, time.monotonic)
        self._counters: dict[str, CounterHistory] = {}
        self._history: tuple[tuple[float, Mapping[str, float | None]], ...] = ()
        self._cluster: Snapshot[ClusterLook] = Snapshot(None, None)
        self._figures: dict[str, Snapshot[Record]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bk_spark-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns when the collecting thread has ended; before the client is closed."""
        self._stopped.set()
        self._thread.join()
        for snapshots in (self._clusters, self._views, self._bookies):
            snapshots.close()

    # --- what the page asks for

    def overview(self) -> Record:
        """The cluster as a whole, and its rates of the last minutes."""
        return _answer(self._cluster, self._overview)

    def bookies(self) -> Record:
        """Every bookie, the lost ones too."""
        return _answer(self._cluster, lambda cluster: {"rows": self._rows(cluster)})

    def under_replicated(self) -> Record:
        """The marks, ascending by ledger."""
        return _answer(self._cluster, _marks)

    def ledgers(self, after: int, limit: int, state: str) -> Record:
        """A page of ledgers with ids above ``after``; ``state`` is one of ``STATES``."""
        return self._view(("ledgers", after, limit, state), lambda: ledger_page(self._client, after, limit, state))

    def ledger(self, ledger_id: int) -> Record:
        cluster = self._cluster.value
        modes = cluster.modes() if cluster is not None else {}
        return self._view(("ledger", ledger_id), lambda: one_ledger(self._client, ledger_id, modes))

    def logs(self, after: str, limit: int) -> Record:
        """A page of logs with names above ``after``."""
        return self._view(("logs", after, limit), lambda: log_page(self._client, after, limit))

    def log(self, name: str) -> Record:
        return self._view(("log", name), lambda: self._logs.look_at(name))

    def _view(self, key: Hashable, read: Callable[[], Record]) -> Record:
        return _answer(self._views.look(key, lambda: _or_absent(read), WAIT_S), lambda value: value)

    # --- the collecting thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.collect()
            self._stopped.wait(PERIOD_S)

    def collect(self) -> None:
        """Look once at the cluster and, without waiting for them, at its bookies."""
        self._cluster = self._clusters.look("cluster", lambda: look_at_cluster(self._client), WAIT_S)
        registered = self._cluster.value.registered if self._cluster.value is not None else ()
        self._counters = {one.bookie_id: self._counters.get(one.bookie_id) or CounterHistory() for one in registered}
        self._figures = {one.bookie_id: self._look_at(one, self._counters[one.bookie_id]) for one in registered}
        self._history = (*self._history, (time.monotonic(), self._total_rates()))[-HISTORY:]

    def _look_at(self, bookie: RegisteredBookie, counters: CounterHistory) -> Snapshot[Record]:
        return self._bookies.look(bookie.bookie_id, lambda: look_at(self._client, bookie, counters, time.monotonic), 0.0)

    def _total_rates(self) -> dict[str, float | None]:
        """Sums over the bookies that say something; None where none does."""
        values = [one.value for one in self._figures.values() if one.value is not None and _is_fresh(one)]
        rates = {field: [cast(float, value[field]) for value in values if value[field] is not None] for field in RATES}
        return {field: sum(known) if known else None for field, known in rates.items()}

    # --- records

    def _overview(self, cluster: ClusterLook) -> Record:
        known = [one.value for one in self._figures.values() if one.value is not None and _is_fresh(one)]
        total, free = (sum(cast(int, value[name]) for value in known) for name in ("total_bytes", "free_bytes"))
        modes = list(cluster.modes().values())
        now_s = time.monotonic()
        history = self._history
        return {
            "metadata": self._client.metadata_store.uri,
            "instance_id": cluster.instance_id,
            **{name: modes.count(mode) for name, mode in (("writable", WRITABLE), ("read_only", READ_ONLY), ("lost", LOST))},
            "space": {"total_bytes": total, "free_bytes": free, "bookies": len(known)},
            "under_replicated": cluster.marked,
            "autorecovery_enabled": cluster.autorecovery_enabled,
            "auditor": cluster.auditor,
            "with_metrics": sum(bool(value["metrics"]) for value in known),
            "rates": history[-1][1] if history else {},
            "history": [[round(now_s - at_s, 1), *rates.values()] for at_s, rates in history],
            "history_of": list(RATES),
        }

    def _rows(self, cluster: ClusterLook) -> list[Record]:
        rows: list[Record] = [self._row(one) for one in cluster.registered]
        rows += [{"id": one, "mode": LOST, "why": WHY_LOST} for one in cluster.lost]
        return sorted(rows, key=lambda row: str(row["id"]))

    def _row(self, bookie: RegisteredBookie) -> Record:
        figures = self._figures.get(bookie.bookie_id) or Snapshot(None, None)
        return {
            "id": bookie.bookie_id,
            "mode": READ_ONLY if bookie.read_only else WRITABLE,
            "address": f"{bookie.address.host}:{bookie.address.port}",
            "rack": bookie.rack,
            "metrics_address": bookie.http,
            **(figures.value or {}),
            "age_s": figures.age_s,
            "problem": figures.problem,
            "failing_s": figures.failing_s,
        }


def _answer(found: Snapshot[_Value], record: Callable[[_Value], Record]) -> Record:
    return {
        "value": None if found.value is None else record(found.value),
        "age_s": found.age_s,
        "problem": found.problem,
        "failing_s": found.failing_s,
    }


def _or_absent(read: Callable[[], Record]) -> Record:
    """What is certainly not there, or cannot be made sense of, is an answer, and no failure to read."""
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
    }


def _is_fresh(figures: Snapshot[Record]) -> bool:
    return figures.age_s is not None and figures.age_s < STALE_S
