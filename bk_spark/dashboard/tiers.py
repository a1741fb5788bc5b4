"""What is shown of logs' tiers. Only the metadata store is read: neither bookies nor catalogs are asked.

Settings hold no secrets (``Tier``). Of the catalog, which is for programs, nothing is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bk_spark.dashboard.snapshots import Record
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import Head, Totals
from bk_spark.log.tier.standing import TierStanding, TierStandings, behind_after_s
from bk_spark.metadata.store import Versioned


@dataclass(frozen=True, slots=True)
class HeldLog:
    """A log that exists, as its head says it."""

    uid: str
    head: Head


class TierView:
    """Looks at tiers. ``clock_s``: the time of day, against which the store's times of commits are held."""

    def __init__(self, logs: LogStore, clock_s: Callable[[], float] = time.time) -> None:
        self._logs = logs
        self._clock_s = clock_s
        self._standings = TierStandings(logs)

    def of(self, logs: Mapping[str, HeldLog]) -> dict[str, Record]:
        """The tier of each of the logs that has one. One that cannot be read tells its problem, and holds up no other."""
        tiered = {name: one for name, one in logs.items() if one.head.tier is not None}
        paths = [self._logs.names.paths(one.uid).tier_settings for one in tiered.values()]
        stored = self._logs.store.get_many(paths)
        return {name: self._tier(name, one, found) for (name, one), found in zip(tiered.items(), stored, strict=True)}

    def _tier(self, name: str, log: HeldLog, stored: Versioned | None) -> Record:
        if stored is None:
            return {"problem": "its settings are missing"}
        try:
            settings = Tier.decode(f"the settings of the tier of log '{name}'", stored.value)
            return _record(settings, self._standings.of(name, log.uid, log.head), 1000 * self._clock_s())
        except MetadataUnavailableError:
            raise
        except BookKeeperError as problem:
            return {"problem": str(problem)}


def _record(settings: Tier, standing: TierStanding, now_ms: float) -> Record:
    return {
        "problem": "",
        "table": settings.table,
        "location": settings.location,
        "after_s": settings.tier_after_s,
        "keep_s": settings.keep_on_bookies_s,
        "tiered": _totals(standing.tiered),
        "waiting": _totals(standing.waiting),
        "released": _totals(standing.released),
        "since_ms": standing.since_ms,
        "open_since_ms": standing.open_since_ms,
        "behind": standing.lag_s(now_ms) > behind_after_s(settings),
        "behind_after_s": behind_after_s(settings),
    }


def _totals(totals: Totals) -> Record:
    return {"ledgers": totals.ledgers, "rows": totals.rows, "bytes": totals.length}
