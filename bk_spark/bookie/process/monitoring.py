"""The HTTP endpoint of a bookie's process: ``/metrics``, ``/health`` and ``/ready``, from before it opens its files to its end.

* ``/health`` is 200 while the process works: it starts, or stops, or its event loop answers. A bookie that takes no adds is
  healthy: to kill it would end the reads, too.
* ``/ready`` is 200 while the bookie takes adds and clients find it in the metadata store, 503 with the reasons while it does
  not; while it starts, how far it is.
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

from bk_spark.bookie.admission import ORDERED
from bk_spark.bookie.disk import AppendFile, Disk
from bk_spark.bookie.log_files.log_file import FileKind
from bk_spark.bookie.pace import SYSTEM_CLOCKS
from bk_spark.bookie.process.background import RunningBookie
from bk_spark.bookie.process.figures import bookie_figures, session_figures, start_figures
from bk_spark.bookie.progress import Progress
from bk_spark.config import BookieConfig
from bk_spark.host_port import HostPort, is_any_address, parse_host
from bk_spark.metadata.zookeeper_session import SessionState
from bk_spark.telemetry import metrics
from bk_spark.telemetry.http_endpoint import HttpEndpoint, Response, text_response
from bk_spark.telemetry.registry import CONTENT_TYPE, Figure, asked, by_label, render
from bk_spark.version import VERSION

ANSWER_S = 3.0
"""The event loop answers within milliseconds; if it has not within this time, it never will."""

STARTS = "it starts"
STOPS = "it stops"

OTHER = "other"

_SYNC_S = by_label(metrics.BOOKIE_SYNC_S, ["journal", "entry_log", OTHER])
_KINDS = {FileKind.JOURNAL.suffix: "journal", FileKind.ENTRY_LOG.suffix: "entry_log"}


class Monitoring:
    """The endpoint of one process. ``of`` names the bookie in it, again for each time that it opens its storage."""

    def __init__(self, bookie_host: str, config: BookieConfig, session: Callable[[], SessionState]) -> None:
        """``session`` tells how the session with the metadata store stands.

        The ``with`` statement starts to listen, if ``config`` names a port; it raises ConfigError if it cannot.
        """
        self._host, self._port = parse_host(config.http_host or bookie_host), config.http_port
        is_known = config.http_host and not is_any_address(self._host)
        self._known_host = self._host if is_known else parse_host(bookie_host)
        self._session = session
        self._running: RunningBookie | None = None
        """None while the bookie does not serve."""
        self._unregistered: Callable[[], str] = lambda: ""
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
            self.address = str(HostPort(self._known_host, self._endpoint.port))
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

    def serves(self, running: RunningBookie, unregistered: Callable[[], str]) -> None:
        """The bookie serves and is about to register. ``unregistered`` says why clients may not find it, "" if they do."""
        self._unregistered = unregistered  # first: whoever sees that the bookie runs asks it
        self._running = running

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
        if unregistered := self._unregistered():
            reasons.append(f"unregistered: {unregistered}")
        if bookie.failure is not None:
            reasons.append(f"failed: {str(bookie.failure) or repr(bookie.failure)}")
        if bookie.lapse:
            reasons.append(f"lapsed: {bookie.lapse}")
        if bookie.is_ordered_read_only:
            reasons.append(f"read-only: {ORDERED}")
        elif bookie.is_read_only:
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
        yield from session_figures(self._session())
        if running := self._running:
            yield from bookie_figures(running)
        elif progress := self._progress:
            yield from start_figures(progress)

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
