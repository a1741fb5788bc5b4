"""What a scrape of ``/metrics`` asks a running bookie for: states, fill levels, and the figures of background tasks.

It measures the space on the disks, changes nothing, and holds no lock for long.

Ref: telemetry/metrics.py; docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bk_spark.bookie.background_task import BackgroundTask
from bk_spark.bookie.pace import SYSTEM_CLOCKS
from bk_spark.bookie.process.background import RunningBookie
from bk_spark.bookie.progress import Progress
from bk_spark.metadata.zookeeper_session import SessionState
from bk_spark.telemetry import metrics
from bk_spark.telemetry.registry import Described, Figure

DAY_S = 86_400.0

_Table = tuple[tuple[Described, str], ...]
"""A metric, and the figure of a task's status that it shows."""

_COLLECTOR: _Table = (
    (metrics.BOOKIE_GC_RUNS, "runs"),
    (metrics.BOOKIE_GC_SUSPENDED, "is_suspended"),
    (metrics.BOOKIE_GC_LEDGERS, "ledgers_deleted"),
    (metrics.BOOKIE_GC_LOGS, "logs_deleted"),
    (metrics.BOOKIE_COMPACTED_LOGS, "logs_compacted"),
    (metrics.BOOKIE_COMPACTED_BYTES, "bytes_copied"),
    (metrics.BOOKIE_LOG_BYTES, "total_bytes"),
    (metrics.BOOKIE_LOG_LIVE_BYTES, "live_bytes"),
)
_SCRUB: _Table = (
    (metrics.BOOKIE_SCRUBS, "runs"),
    (metrics.BOOKIE_SCRUB_BYTES, "bytes_checked"),
    (metrics.BOOKIE_SCRUB_TOTAL_BYTES, "total_bytes"),
    (metrics.BOOKIE_DAMAGED, "damaged"),
    (metrics.BOOKIE_REPAIRED, "repaired"),
)
_REPAIR: _Table = (
    (metrics.BOOKIE_SETTLED, "settled"),
    (metrics.BOOKIE_UNSETTLED, "unsettled"),
    (metrics.BOOKIE_LIMBO_ENTRIES, "copied_entries"),
    (metrics.BOOKIE_LIMBO_BYTES, "copied_bytes"),
)


def bookie_figures(running: RunningBookie) -> Iterator[Figure]:
    """All figures of a bookie that serves."""
    yield from _state_figures(running)
    yield from _disk_figures(running)
    yield from _background_figures(running)
    yield from _certificate_figures(running)


def session_figures(session: SessionState) -> Iterator[Figure]:
    yield Figure(metrics.BOOKIE_ZOOKEEPER_CONNECTED, session.is_connected)
    yield Figure(metrics.BOOKIE_ZOOKEEPER_LOST, session.lost)
    yield Figure(metrics.BOOKIE_ZOOKEEPER_CHANGED_S, SYSTEM_CLOCKS.steady_s() - session.changed_s)


def start_figures(progress: Progress) -> Iterator[Figure]:
    """While a bookie starts."""
    yield Figure(metrics.BOOKIE_START_BYTES, progress.done_bytes)
    yield Figure(metrics.BOOKIE_START_TOTAL_BYTES, progress.total_bytes)


def _state_figures(running: RunningBookie) -> Iterator[Figure]:
    bookie, server, config = running.bookie, running.server, running.config
    active, frozen = bookie.storage.cache_bytes
    yield Figure(metrics.BOOKIE_READ_ONLY, bookie.is_read_only)
    yield Figure(metrics.BOOKIE_FAILED, bookie.failure is not None)
    if running.epoch_keeper is not None:
        yield Figure(metrics.BOOKIE_EPOCH_AGE_S, running.epoch_keeper.age_s())
    yield Figure(metrics.BOOKIE_LIMBO_IDS, 0 if bookie.limbo is None else bookie.limbo.ids)
    yield Figure(metrics.BOOKIE_ADD_STREAMS, server.add_streams)
    yield Figure(metrics.BOOKIE_LONG_POLLS, server.requests.polls.count)
    yield Figure(metrics.BOOKIE_QUEUE_BYTES, server.requests.sync_thread.queued_bytes)
    yield Figure(metrics.BOOKIE_QUEUE_LIMIT_BYTES, config.sync_queue_bytes)
    yield Figure(metrics.BOOKIE_CACHE_BYTES, active, ("active",))
    yield Figure(metrics.BOOKIE_CACHE_BYTES, frozen, ("frozen",))
    yield Figure(metrics.BOOKIE_CACHE_LIMIT_BYTES, config.write_cache_bytes)


def _disk_figures(running: RunningBookie) -> Iterator[Figure]:
    for path, space in running.watch.spaces().items():
        directory = (str(path),)
        yield Figure(metrics.BOOKIE_DISK_FULL, path in running.watch.state.full, directory)
        if space is not None:
            yield Figure(metrics.BOOKIE_DISK_FREE_BYTES, space.free_bytes, directory)
            yield Figure(metrics.BOOKIE_DISK_TOTAL_BYTES, space.total_bytes, directory)


def _background_figures(running: RunningBookie) -> Iterator[Figure]:
    background = running.administration.background
    if background is None:
        return
    yield from _task_figures(background.collector, _COLLECTOR, metrics.BOOKIE_GC_FAILING)
    counted = background.collector.status().figures()
    yield Figure(metrics.BOOKIE_GC_DELETED_BYTES, counted["bytes_freed"] + counted["bytes_copied"])
    yield from _task_figures(background.scrub, _SCRUB, metrics.BOOKIE_SCRUB_FAILING)
    if background.repair is not None:
        yield from _task_figures(background.repair, _REPAIR)


def _task_figures(task: BackgroundTask[Any], table: _Table, failing: Described | None = None) -> Iterator[Figure]:
    status = task.status()
    counted = status.figures()
    for metric, name in table:
        yield Figure(metric, counted[name])
    if failing is not None:
        yield Figure(failing, status.last_error != "")


def _certificate_figures(running: RunningBookie) -> Iterator[Figure]:
    """Of the files as they are in use: those that do not fit together yet are not."""
    content = running.server.tls_content()
    if content is None:
        return
    from bk_spark.tls.certificates import expiries

    now_s = SYSTEM_CLOCKS.wall_ms() / 1000
    shown = {"server": content.certificate, "ca": content.ca}
    if content.ca is not None:  # without it the client that repairs this bookie shows no certificate
        shown["client"] = content.certificate
    for use, pem in shown.items():
        for one in expiries(pem or b""):
            yield Figure(metrics.BOOKIE_CERTIFICATE_DAYS, (one.ends_s - now_s) / DAY_S, (use, one.subject, one.serial))
