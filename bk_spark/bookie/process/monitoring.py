"""The HTTP endpoint of a bookie's process: ``/metrics``, ``/health`` and ``/ready``, from before it opens its files to its end.

* ``/health`` is 200 while the process works: it starts, or stops, or its event loop answers. A bookie that takes no adds is
  healthy: to kill it would end the reads, too.
* ``/ready`` is 200 while the bookie takes adds, 503 with the reasons while it does not; while it starts, how far it is.
* ``/metrics`` shows the registries BOOKIE and CLIENT (of the client that repairs this bookie), all with the label ``bookie``.
  Besides what is counted anyway, a scrape asks for states, fill levels and the figures of background tasks, and measures the
  space on the disks. It changes nothing, and holds no lock for long.

MeasuredDisk counts how often files are synced, and how long that takes, by the kind of file.

Ref: telemetry/metrics.py; docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bk_spark.bookie.background_task import BackgroundTask
from bk_spark.bookie.disk import AppendFile, Disk
from bk_spark.bookie.index.rows import Limbo
from bk_spark.bookie.logs.log_file import FileKind
from bk_spark.bookie.pace import SYSTEM_CLOCKS
from bk_spark.bookie.process.background import RunningBookie
from bk_spark.bookie.progress import Progress
from bk_spark.config import BookieConfig
from bk_spark.telemetry import metrics
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, text_response
from bk_spark.telemetry.registry import CONTENT_TYPE, Described, Figure, asked, by_label, render
from bk_spark.version import VERSION

ANSWER_S = 3.0
"""The event loop answers within milliseconds; if it has not within this time, it never will."""

STARTS = "it starts"
STOPS = "it stops"

_EVERYWHERE = ("", "0.0.0.0", "::")

OTHER = "other"

_SYNC_S = by_label(metrics.BOOKIE_SYNC_S, ["journal", "entry_log", OTHER])
_KINDS = {FileKind.JOURNAL.suffix: "journal", FileKind.ENTRY_LOG.suffix: "entry_log"}

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
    (metrics.BOOKIE_DAMAGED, "damaged"),
    (metrics.BOOKIE_REPAIRED, "repaired"),
)
_REPAIR: _Table = ((metrics.BOOKIE_SETTLED, "settled"), (metrics.BOOKIE_UNSETTLED, "unsettled"))


class Monitoring:
    """The endpoint of one process. ``of`` names the bookie in it, again for each time that it opens its storage."""

    def __init__(self, bookie_host: str, config: BookieConfig) -> None:
        """The ``with`` statement starts to listen, if ``config`` names a port; it raises ConfigError if it cannot."""
        self._host, self._port = config.http_host or bookie_host, config.http_port
        self._known_host = bookie_host if config.http_host in _EVERYWHERE else config.http_host
        self._running: RunningBookie | None = None
        """None while the bookie does not serve."""
        self._is_registered: Callable[[], bool] = lambda: False
        self._phase = STARTS
        self._progress: Progress | None = None
        self._bookie_id = ""
        self._began_s = SYSTEM_CLOCKS.steady_s()
        self._endpoint: HttpEndpoint | None = None
        self.address: str | None = None
        """Where clients find the endpoint, ``host:port``; None without one."""

    def __enter__(self) -> Monitoring:
        if self._port >= 0:
            routes = {"/metrics": self._metrics, "/health": self._health, "/ready": self._ready}
            self._endpoint = HttpEndpoint(self._host, self._port, routes)
            self._endpoint.start()
            host = f"[{self._known_host}]" if ":" in self._known_host else self._known_host
            self.address = f"{host}:{self._endpoint.port}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    @contextmanager
    def of(self, bookie_id: str, progress: Progress | None = None) -> Iterator[None]:
        """Show the metrics of this bookie, for one run of it, and how far its start has come."""
        self._bookie_id, self._phase, self._progress = bookie_id, STARTS, progress
        try:
            with asked(metrics.BOOKIE, self._figures):
                yield
        finally:
            self._running = None

    def serves(self, running: RunningBookie, is_registered: Callable[[], bool]) -> None:
        """The bookie serves and is about to register."""
        self._running, self._is_registered = running, is_registered

    def stops(self) -> None:
        """The bookie is about to leave the list of bookies."""
        self._phase, self._progress, self._running = STOPS, None, None

    def reasons(self) -> list[str]:
        """Why it takes no adds, or clients do not know of it; empty if it takes adds."""
        running = self._running
        if running is None:
            progress = self._progress
            return [f"{self._phase}: {progress.text}" if progress is not None and progress.text else self._phase]
        bookie, problem = running.bookie, running.watch.state.problem
        reasons = []
        if not self._is_registered():
            reasons.append("it is not registered yet")
        if bookie.failure is not None:
            reasons.append(f"failed: {bookie.failure}")
        if bookie.lapse:
            reasons.append(f"lapsed: {bookie.lapse}")
        if bookie.is_read_only:
            reasons.append(f"read-only: {problem or 'there is space again, it is about to take adds'}")
        if bookie.ids_above:
            reasons.append(bookie.ids_above)
        if bookie.limbo is not None:
            reasons.append("limbo: it may have lost data and repairs it from the other bookies")
        return reasons

    def _figures(self) -> Iterator[Figure]:
        yield Figure(metrics.BOOKIE_INFO, 1, (VERSION,))
        yield Figure(metrics.BOOKIE_UPTIME_S, SYSTEM_CLOCKS.steady_s() - self._began_s)
        yield Figure(metrics.BOOKIE_READY, not self.reasons())
        if running := self._running:
            yield from _bookie_figures(running)
            yield from _disk_figures(running)
            yield from _background_figures(running)

    def _metrics(self, _: Mapping[str, str]) -> Response:
        return Response(HTTPStatus.OK, CONTENT_TYPE, render(metrics.BOOKIE, metrics.CLIENT, bookie_id=self._bookie_id))

    def _health(self, _: Mapping[str, str]) -> Response:
        running = self._running
        if running is not None and not running.server.answers(ANSWER_S):
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"its event loop did not answer within {ANSWER_S:g} s")
        return text_response(HTTPStatus.OK, "alive")

    def _ready(self, _: Mapping[str, str]) -> Response:
        reasons = self.reasons()
        if reasons:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {'; '.join(reasons)}")
        return text_response(HTTPStatus.OK, "ready")


def _bookie_figures(running: RunningBookie) -> Iterator[Figure]:
    bookie, server, config = running.bookie, running.server, running.config
    active, frozen = bookie.storage.cache_bytes
    yield Figure(metrics.BOOKIE_READ_ONLY, bookie.is_read_only)
    yield Figure(metrics.BOOKIE_FAILED, bookie.failure is not None)
    if running.epochs is not None:
        yield Figure(metrics.BOOKIE_EPOCH_AGE_S, running.epochs.age_s())
    yield Figure(metrics.BOOKIE_LIMBO_IDS, _limbo_ids(bookie.limbo))
    yield Figure(metrics.BOOKIE_ADD_STREAMS, server.add_streams)
    yield Figure(metrics.BOOKIE_LONG_POLLS, server.requests.polls.count)
    yield Figure(metrics.BOOKIE_QUEUE_BYTES, server.requests.sync_thread.queued_bytes)
    yield Figure(metrics.BOOKIE_QUEUE_LIMIT_BYTES, config.sync_queue_bytes)
    yield Figure(metrics.BOOKIE_CACHE_BYTES, active, ("active",))
    yield Figure(metrics.BOOKIE_CACHE_BYTES, frozen, ("frozen",))
    yield Figure(metrics.BOOKIE_CACHE_LIMIT_BYTES, config.write_cache_bytes)


def _limbo_ids(limbo: Limbo | None) -> int:
    if limbo is None:
        return 0
    return max(0, limbo.fence_watermark - limbo.settled_through) + len(limbo.unsettled)


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


class MeasuredFile(AppendFile):
    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self._measured_path = path
        self._sync_s = _SYNC_S[kind_of(path)]

    def _fdatasync(self) -> None:
        began_s = SYSTEM_CLOCKS.steady_s()
        super()._fdatasync()
        if self.path is not self._measured_path:  # the file was renamed from its temporary name
            self._measured_path, self._sync_s = self.path, _SYNC_S[kind_of(self.path)]
        self._sync_s.observe(SYSTEM_CLOCKS.steady_s() - began_s)


class MeasuredDisk(Disk):
    """The real disk. Syncs of directories and of SQLite are not measured: they happen only with checkpoints."""

    append_file = MeasuredFile


def kind_of(path: Path) -> str:
    """The label of a file in the metric."""
    return _KINDS.get(path.suffix, OTHER)
