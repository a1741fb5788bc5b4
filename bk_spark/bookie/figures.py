"""What a scrape asks a bookie for: states, fills, and what its background tasks count anyway.

It takes numbers that others keep, and measures the space on the disks; nothing is changed, and no lock is held for long.

Ref: metrics.py; docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark import metrics
from bk_spark.bookie.administration import Task
from bk_spark.bookie.background import RunningBookie
from bk_spark.bookie.index_rows import Limbo
from bk_spark.metrics_registry import Described, Figure

_COLLECTOR = (
    (metrics.BOOKIE_GC_RUNS, "runs"),
    (metrics.BOOKIE_GC_SUSPENDED, "is_suspended"),
    (metrics.BOOKIE_GC_LEDGERS, "ledgers_deleted"),
    (metrics.BOOKIE_GC_LOGS, "logs_deleted"),
    (metrics.BOOKIE_COMPACTED_LOGS, "logs_compacted"),
    (metrics.BOOKIE_COMPACTED_BYTES, "bytes_copied"),
    (metrics.BOOKIE_LOG_BYTES, "total_bytes"),
    (metrics.BOOKIE_LOG_LIVE_BYTES, "live_bytes"),
)
_SCRUB = (
    (metrics.BOOKIE_SCRUBS, "runs"),
    (metrics.BOOKIE_SCRUB_BYTES, "bytes_checked"),
    (metrics.BOOKIE_DAMAGED, "damaged"),
    (metrics.BOOKIE_REPAIRED, "repaired"),
)
_REPAIR = ((metrics.BOOKIE_SETTLED, "settled"), (metrics.BOOKIE_UNSETTLED, "unsettled"))


def figures_of(running: RunningBookie) -> Iterator[Figure]:
    """All of them but those of the process. Any thread."""
    yield from _states(running)
    yield from _fills(running)
    yield from _disks(running)
    tasks = running.administration.tasks
    if tasks is not None:
        yield from _task(tasks.collector, _COLLECTOR, metrics.BOOKIE_GC_FAILING)
        counted = tasks.collector.status().figures()
        yield Figure(metrics.BOOKIE_GC_DELETED_BYTES, counted["bytes_freed"] + counted["bytes_copied"])
        yield from _task(tasks.scrub, _SCRUB, metrics.BOOKIE_SCRUB_FAILING)
        if tasks.repair is not None:
            yield from _task(tasks.repair, _REPAIR)


def _states(running: RunningBookie) -> Iterator[Figure]:
    bookie = running.bookie
    yield Figure(metrics.BOOKIE_READ_ONLY, bookie.is_read_only)
    yield Figure(metrics.BOOKIE_FAILED, bookie.failure is not None)
    yield Figure(metrics.BOOKIE_LIMBO_IDS, _limbo_ids(bookie.limbo))


def _fills(running: RunningBookie) -> Iterator[Figure]:
    server, config = running.server, running.config
    active, frozen = running.bookie.storage.cache_bytes
    yield Figure(metrics.BOOKIE_ADD_STREAMS, server.add_streams)
    yield Figure(metrics.BOOKIE_LONG_POLLS, server.long_polls)
    yield Figure(metrics.BOOKIE_QUEUE_BYTES, server.queued_bytes)
    yield Figure(metrics.BOOKIE_QUEUE_LIMIT_BYTES, config.sync_queue_bytes)
    yield Figure(metrics.BOOKIE_CACHE_BYTES, active, ("active",))
    yield Figure(metrics.BOOKIE_CACHE_BYTES, frozen, ("frozen",))
    yield Figure(metrics.BOOKIE_CACHE_LIMIT_BYTES, config.write_cache_bytes)


def _disks(running: RunningBookie) -> Iterator[Figure]:
    for path, space in running.watch.spaces().items():
        directory = (str(path),)
        yield Figure(metrics.BOOKIE_DISK_FULL, path in running.watch.state.full, directory)
        if space is not None:
            yield Figure(metrics.BOOKIE_DISK_FREE_BYTES, space.free_bytes, directory)
            yield Figure(metrics.BOOKIE_DISK_TOTAL_BYTES, space.total_bytes, directory)


def _task(task: Task, table: tuple[tuple[Described, str], ...], failing: Described | None = None) -> Iterator[Figure]:
    status = task.status()
    counted = status.figures()
    for metric, name in table:
        yield Figure(metric, counted[name])
    if failing is not None:
        yield Figure(failing, status.last_error != "")


def _limbo_ids(limbo: Limbo | None) -> int:
    if limbo is None:
        return 0
    return max(0, limbo.fence_watermark - limbo.settled_through) + len(limbo.unsettled)
