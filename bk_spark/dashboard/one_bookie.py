"""One look at one bookie: what it says of itself, and what its counters say of the last seconds."""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.dashboard.rates import CounterHistory
from bk_spark.dashboard.scrape import scrape
from bk_spark.dashboard.snapshots import UnansweredError
from bk_spark.registration import RegisteredBookie
from bk_spark.wire import Operation, Status

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
    status = client.administer_bookie(bookie.bookie_id, Operation.BOOKIE_STATUS)
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
