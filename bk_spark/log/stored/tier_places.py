"""Where the rows of ledgers lie in a log's tier.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from bk_spark.errors import ConfigError, CorruptionError, NoSuchLogError, State
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_records import DataFile, TieredLedger, TierSection
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.tree import chunks
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.metadata.store import MetadataStore, Versioned


@dataclass(frozen=True, slots=True)
class TieredPlace:
    """A ledger of a section, and the files that have its rows."""

    ledger: TieredLedger
    files: tuple[DataFile, ...]


_MOST_SETTINGS = 1000
"""Logs whose settings a client remembers: some hundred bytes each, and a small read to learn them again."""


_SECTIONS_AT_ONCE = 100
"""A record of MOST_LEDGERS ledgers has 50 KB: 5 MB in flight."""

_MOST_INDEXED, _LOGS_INDEXED = 200_000, 20
"""Ledgers of a log whose section a client remembers, some hundred bytes each; and logs."""


@dataclass(slots=True)
class _Index:
    """Which section has a ledger: that never changes."""

    beyond: int = 0
    """The sections below are in it."""
    numbers: dict[int, int] = field(default_factory=dict)
    is_full: bool = False

    def add(self, number: int, section: TierSection) -> None:
        """The next section. It skips those alone that a vacuum has given up: nobody finds their ledgers any more."""
        self.is_full |= len(self.numbers) + len(section.ledgers) > _MOST_INDEXED
        if number >= self.beyond and not self.is_full:
            self.numbers |= {one.ledger_id: number for one in section.ledgers}
            self.beyond = number + 1


def untiered(mark: TierMark | None, closed: Sequence[CommittedLedger]) -> Sequence[CommittedLedger]:
    """The ledgers of the newest version, in log order → those that no section, and no step under way, holds."""
    boundary = None if mark is None else mark.boundary
    behind = (place + 1 for place, one in enumerate(closed) if one.ledger_id == boundary)
    return closed[next(behind, 0) :]


class TierPlaces:
    """The sections of the logs of one store."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names
        self._settings: dict[str, Tier] = {}
        self._indexes: dict[str, _Index] = {}
        """By the log's uid. Threads that extend one at once add the same."""

    def find(self, name: str, uid: str, ledger_ids: Collection[int]) -> dict[int, TieredPlace]:
        """Without ledgers that no section has; none for a log that was deleted. Sees every section from before the call.

        Raises CorruptionError where a section's record is missing: whether it had the ledger is unknown.
        """
        try:
            mark = self._names.fresh_head(name, uid).tier
            return self._find(name, uid, ledger_ids, range(mark.oldest, mark.sections)) if mark else {}
        except NoSuchLogError:
            return {}

    def released(self, name: str, uid: str, mark: TierMark | None, ledger_ids: Collection[int]) -> dict[int, TieredPlace]:
        """As ``find``, for ledgers that may be gone from bookies by ``mark``. Asks nobody for a log that released none."""
        return {} if mark is None else self._find(name, uid, ledger_ids, range(mark.oldest, mark.released))

    def known_settings(self, name: str, uid: str) -> Tier:
        """As ``settings``, as they were when this client first asked: where a tier lies never changes."""
        if uid not in self._settings:
            if len(self._settings) >= _MOST_SETTINGS:
                self._settings.clear()
            self._settings[uid] = self.settings(name, uid)
        return self._settings[uid]

    def settings(self, name: str, uid: str) -> Tier:
        """Raises ConfigError for a log without a tier."""
        path = self._names.paths(uid).tier_settings
        (stored,) = self._store.get_many([path])
        if stored is None:
            self._store.sync(path)
            (stored,) = self._store.get_many([path])
        if stored is None:
            raise ConfigError(f"the tier of log '{name}'", State("missing"), "set one first: bk-spark log set, Log.set_tier")
        return Tier.decode(f"the settings of the tier of log '{name}'", stored.value)

    def sections(self, name: str, uid: str, numbers: range) -> Iterator[TierSection]:
        """Those of them that no vacuum has given up. Raises CorruptionError where a record is missing; NoSuchLogError."""
        return (section for _, section in self._numbered(name, uid, numbers))

    def _numbered(self, name: str, uid: str, numbers: Sequence[int]) -> Iterator[tuple[int, TierSection]]:
        for some in chunks(numbers, _SECTIONS_AT_ONCE):
            values = self._store.get_many([self._names.paths(uid).tier_section(number) for number in some])
            oldest = self._oldest(name, uid) if None in values else 0
            for number, stored in zip(some, values, strict=True):
                if stored is not None or number >= oldest:
                    yield number, self._decoded(name, uid, number, stored)

    def _oldest(self, name: str, uid: str) -> int:
        """A vacuum has given up the sections below."""
        mark = self._names.fresh_head(name, uid).tier
        return 0 if mark is None else mark.oldest

    def _index_of(self, uid: str) -> _Index:
        if uid not in self._indexes and len(self._indexes) >= _LOGS_INDEXED:
            self._indexes.clear()
        return self._indexes.setdefault(uid, _Index())

    def _find(self, name: str, uid: str, ledger_ids: Collection[int], sections: range) -> dict[int, TieredPlace]:
        """Reads the sections that are known to have the ledgers, and those of which nothing is known yet."""
        index = self._index_of(uid)
        known = {index.numbers.get(ledger_id, -1) for ledger_id in ledger_ids}
        unknown = range(max(index.beyond, sections.start), sections.stop)
        found: dict[int, TieredPlace] = {}
        for number, section in self._numbered(name, uid, [*sorted(known.intersection(sections)), *unknown]):
            index.add(number, section)
            wanted = (one for one in section.ledgers if one.ledger_id in ledger_ids)
            found |= {one.ledger_id: TieredPlace(one, section.files_of(one.ledger_id)) for one in wanted}
        return found

    def _decoded(self, name: str, uid: str, number: int, stored: Versioned | None) -> TierSection:
        what = f"section {number} of the tier of log '{name}'"
        if stored is None:
            self._names.fresh_head(name, uid)  # raises NoSuchLogError if the log was deleted meanwhile
            raise CorruptionError(what, "it is missing from the metadata store")
        return TierSection.decode(what, stored.value)
