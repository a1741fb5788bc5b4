"""Looks at the tiers of all logs every so often, and tells how far they are: the metrics of ``bk-spark tier serve``.

It looks beside the tiering, on a thread of its own. So what waits is known while one log takes an hour, while another process
has the log, and while the table does not answer. A look costs about one round trip for a thousand logs, and some more for each
log that changed since the last one.

There is no sample for each log: ten thousand would be too many. Totals and the longest lag are always there; by name, at most
MOST_NAMED logs that are behind or fail.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bk_spark.errors import BookKeeperError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.names import decode_head
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.log.stored.values import Totals
from bk_spark.log.tier.standing import TierStanding, TierStandings, behind_after_s
from bk_spark.metadata.store import Versioned
from bk_spark.telemetry import metrics
from bk_spark.telemetry.registry import Described, Figure

MOST_NAMED = 20
"""Logs that are told by name: enough to see what they have in common; above that, the number of them says more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One log at one look."""

    name: str
    standing: TierStanding
    behind_after_s: int


@dataclass(frozen=True, slots=True)
class _Look:
    """All logs at one look."""

    at_s: float
    store_ms: int
    """The metadata store's clock then."""
    logs: tuple[_Seen, ...]
    unknown: int


class TierWatch:
    """Looks every ``interval_s`` seconds from ``start`` to ``close``, or in a ``with`` statement. ``clock``: seconds."""

    def __init__(self, logs: LogStore, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._interval_s = interval_s
        self._clock = clock
        self._standings = TierStandings(logs)
        self._newest: _Look | None = None
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bk_spark-tier-watch", daemon=True)

    def __enter__(self) -> TierWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until a look that is under way has ended."""
        self._stopped.set()
        self._thread.join()

    def tried(self, name: str, problem: BookKeeperError | None) -> None:
        """This process tried to tier a log, or left it to another one."""
        with self._lock:
            if problem is None:
                self._failures.pop(name, None)
                return
            self._failures[name] = self._failures.get(name, 0) + 1
        metrics.TIER_FAILURES.inc()

    def look(self) -> None:
        """Look at all logs once. Raises MetadataUnavailableError; CorruptionError where not even the logs are known."""
        names = self._logs.names
        at_s, store_ms = self._clock(), StoreTimes(self._logs.store, self._logs.znodes).now_ms()
        found = names.find_many(names.all())
        logs: list[_Seen] = []
        unknown = 0
        for some in chunks(list(found.items()), READS_AT_ONCE):
            seen, problems = self._look_at(dict(some))
            logs += seen
            unknown += problems
        self._newest = _Look(at_s, store_ms, tuple(logs), unknown)
        with self._lock:
            self._failures = {name: count for name, count in self._failures.items() if name in found}

    def figures(self) -> Iterator[Figure]:
        """What is known now: lags grow from look to look."""
        with self._lock:
            failures = dict(self._failures)
        yield Figure(metrics.TIER_FAILING, len(failures))
        yield from _named(metrics.TIER_LOG_FAILURES, failures)
        newest = self._newest
        if newest is not None:
            yield from _figures(newest, self._clock())

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except BookKeeperError as problem:
                logger.warning("the tiers of logs cannot be looked at now: %s", problem)
            self._stopped.wait(self._interval_s)

    def _look_at(self, uids: Mapping[str, str]) -> tuple[list[_Seen], int]:
        """Those of these logs that have a tier, and how many cannot be read."""
        stored = self._logs.store.get_many([self._logs.names.paths(uid).head for uid in uids.values()])
        standings: dict[str, TierStanding] = {}
        unknown = 0
        for (name, uid), one in zip(uids.items(), stored, strict=True):
            try:
                found = self._standing(name, uid, one)
            except MetadataUnavailableError:
                raise
            except BookKeeperError as problem:
                logger.debug("the tier of log '%s' cannot be looked at: %s", name, problem)
                unknown += 1
                continue
            if found is not None:
                standings[name] = found
        settings = self._settings({name: uids[name] for name in standings})
        seen = [_Seen(name, one, behind_after_s(settings[name])) for name, one in standings.items() if name in settings]
        return seen, unknown + len(standings) - len(seen)

    def _standing(self, name: str, uid: str, stored: Versioned | None) -> TierStanding | None:
        try:
            head = None if stored is None else decode_head(name, stored)
            return None if head is None or head.tier is None else self._standings.of(name, uid, head)
        except NoSuchLogError:
            return None

    def _settings(self, uids: Mapping[str, str]) -> dict[str, Tier]:
        """Without those that cannot be read."""
        stored = self._logs.store.get_many([self._logs.names.paths(uid).tier_settings for uid in uids.values()])
        found: dict[str, Tier] = {}
        for name, one in zip(uids, stored, strict=True):
            try:
                if one is not None:
                    found[name] = Tier.decode(f"the settings of the tier of log '{name}'", one.value)
            except BookKeeperError as problem:
                logger.debug("the tier of log '%s' cannot be looked at: %s", name, problem)
        return found


def _figures(look: _Look, at_s: float) -> Iterator[Figure]:
    now_ms = look.store_ms + 1000 * (at_s - look.at_s)
    lags = {one.name: one.standing.lag_s(now_ms) for one in look.logs}
    behind = {one.name: lags[one.name] for one in look.logs if lags[one.name] > one.behind_after_s}
    opened = [one.standing.open_since_ms for one in look.logs if one.standing.open_since_ms is not None]
    tiered = sum((one.standing.tiered for one in look.logs), Totals())
    waiting = sum((one.standing.waiting for one in look.logs), Totals())
    yield Figure(metrics.TIER_LOGS, len(look.logs))
    yield Figure(metrics.TIER_UNKNOWN, look.unknown)
    yield Figure(metrics.TIER_BEHIND, len(behind))
    yield Figure(metrics.TIER_LAG_S, max(lags.values(), default=0.0))
    yield from _named(metrics.TIER_LOG_LAG_S, behind)
    yield Figure(metrics.TIER_OPEN_S, max(0.0, (now_ms - min(opened, default=now_ms)) / 1000))
    yield Figure(metrics.TIER_WAITING_ROWS, waiting.rows)
    yield Figure(metrics.TIER_WAITING_BYTES, waiting.length)
    yield Figure(metrics.TIER_TABLE_ROWS, tiered.rows)
    yield Figure(metrics.TIER_TABLE_BYTES, tiered.length)
    yield Figure(metrics.TIER_LOOKED_S, at_s - look.at_s)


def _named(metric: Described, values: Mapping[str, float]) -> Iterator[Figure]:
    """The largest ones, by log."""
    worst = heapq.nlargest(MOST_NAMED, values.items(), key=lambda one: one[1])
    return (Figure(metric, value, (name,)) for name, value in worst)
