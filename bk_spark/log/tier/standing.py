"""How far a log's tier has come: what its table has, what waits and since when, and what bookies do not have any more.

All of it is known from the metadata store: no bookie, catalog or file is asked. A ledger that waits is counted until the step
that adds it is done.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.errors import CorruptionError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.origins import origins
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_places import untiered
from bk_spark.log.stored.tier_records import TierStep
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommittedLedger, Head, Totals
from bk_spark.metadata.store import find

BEHIND_TIMES, BEHIND_LEAST_S = 3, 900
"""A tier is behind once its oldest rows have waited for three times ``tier_after_s``: they were due after the first of these,
and two more are enough for a look, a large step and a restart of ``tier serve``. Where it is set to seconds, these take longer:
a quarter of an hour."""

_MOST_KNOWN = 20_000
"""Logs whose standing is remembered: half a kilobyte each."""


@dataclass(frozen=True, slots=True)
class TierStanding:
    """A tier at one moment. What is counted is what the log's newest version lists; times are by the metadata store's clock."""

    tiered: Totals
    """What the table has."""
    waiting: Totals
    """The closed ledgers that it does not have."""
    released: Totals
    """What of ``tiered`` bookies do not have any more."""
    oldest: int | None
    """The first ledger that waits; None if none does."""
    since_ms: int | None
    """When it came into the log; of one that a leader wrote, when it was opened, since its rows came after that. If a vacuum
    removed the record of that, the time of the oldest record, since it came before that."""
    open_since_ms: int | None
    """When the first ledger that is still open was opened, whose rows nobody can tier; None if none is."""

    def lag_s(self, now_ms: float) -> float:
        """How long the oldest rows have waited."""
        return 0.0 if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)


def behind_after_s(settings: Tier) -> int:
    """From which lag on a tier is behind."""
    return max(BEHIND_TIMES * settings.tier_after_s, BEHIND_LEAST_S)


class TierStandings:
    """Looks at the tiers of logs. Remembers what it found, and reads again only where a log or its tier has changed.

    Threads may share it.
    """

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._known: dict[str, tuple[int, TierMark | None, TierStanding]] = {}

    def of(self, name: str, uid: str, head: Head) -> TierStanding:
        """``head`` was just read, and has a tier. Raises NoSuchLogError, CorruptionError, MetadataUnavailableError."""
        known = self._known.get(uid)
        if known is not None and known[:2] == (head.version, head.tier):
            return known[2]
        found = self._look(name, uid, head, self._under_way(name, uid), None if known is None else known[2])
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[uid] = (head.version, head.tier, found)
        return found

    def _under_way(self, name: str, uid: str) -> TierStep | None:
        """The step, read after the head. Where it began or ended between the two, the head has changed: the next look tells."""
        stored = find(self._logs.store, self._logs.names.paths(uid).tier_step)
        what = f"the step of the tier of log '{name}'"
        if stored is None:
            self._logs.names.fresh_head(name, uid)  # raises NoSuchLogError if the log was deleted meanwhile
            raise CorruptionError(what, "it is missing from the metadata store")
        return TierStep.decode(what, stored.value) if stored.value else None

    def _look(self, name: str, uid: str, head: Head, step: TierStep | None, known: TierStanding | None) -> TierStanding:
        assert head.tier is not None, "who asks has seen the tier"
        closed = self._logs.reader.listing(name, uid, head.version).closed
        behind = _behind(head.tier, step, closed)
        oldest = closed[behind].ledger_id if behind < len(closed) else None
        opened = head.writer.open_ledgers
        return TierStanding(
            tiered=Totals.of(closed[:behind]),
            waiting=Totals.of(closed[behind:]),
            released=Totals.of(closed[: min(behind, self._released(name, uid, head.tier, closed))]),
            oldest=oldest,
            since_ms=known.since_ms if known and known.oldest == oldest else self._since_ms(uid, head, oldest),
            open_since_ms=self._committed_ms(uid, head, opened[0].version) if opened else None,
        )

    def _since_ms(self, uid: str, head: Head, ledger_id: int | None) -> int | None:
        if ledger_id is None:
            return None
        origin = origins(self._logs.reader, head, uid, [ledger_id], head.version).get(ledger_id)
        return self._committed_ms(uid, head, 0 if origin is None else origin.version)

    def _committed_ms(self, uid: str, head: Head, version: int) -> int | None:
        """When a version was committed, or the oldest one that has a record."""
        path = self._logs.names.paths(uid).version(max(version, head.oldest_record, 1))
        found = find(self._logs.store, path)
        return None if found is None else found.modified_ms

    def _released(self, name: str, uid: str, mark: TierMark, closed: Sequence[CommittedLedger]) -> int:
        """How many of the first ledgers are gone from bookies: all before the first one that another section has."""
        if not mark.cleared:
            return 0
        places = {one.ledger_id: place for place, one in enumerate(closed)}
        numbers = range(max(mark.cleared, mark.first), mark.sections)
        for section in self._logs.reader.tier.sections(name, uid, numbers):
            found = next((places[one.ledger_id] for one in section.ledgers if one.ledger_id in places), None)
            if found is not None:
                return found
        return len(closed)


def _behind(mark: TierMark, step: TierStep | None, closed: Sequence[CommittedLedger]) -> int:
    """How many of the first ledgers the table has."""
    adds = frozenset(one.ledger_id for one in step.add) if step is not None else frozenset()
    under_way = (place for place, one in enumerate(closed) if one.ledger_id in adds)
    return next(under_way, len(closed) - len(untiered(mark, closed)))
