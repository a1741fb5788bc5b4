"""Where the rows of ledgers lie in a log's tier.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bk_spark.errors import NoSuchLogError
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.tier_records import DataFile, TieredLedger, TierSection
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.metadata.store import MetadataStore


@dataclass(frozen=True, slots=True)
class TieredPlace:
    """A ledger of a section, and the files that have its rows."""

    ledger: TieredLedger
    files: tuple[DataFile, ...]


class TierPlaces:
    """The sections of the logs of one store."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def find(self, name: str, uid: str, ledger_ids: Collection[int]) -> dict[int, TieredPlace]:
        """Without ledgers that no section has; none for a log that was deleted. Sees every section from before the call."""
        try:
            mark = self._names.fresh_head(name, uid).tier
        except NoSuchLogError:
            return {}
        found: dict[int, TieredPlace] = {}
        for numbers in chunks(range(mark.sections if mark else 0), READS_AT_ONCE):
            paths = [self._names.paths(uid).tier_section(number) for number in numbers]
            for path, stored in zip(paths, self._store.get_many(paths), strict=True):
                section = None if stored is None else TierSection.decode(f"the value of {path}", stored.value)
                for one in section.ledgers if section else ():
                    if section and one.ledger_id in ledger_ids:
                        found[one.ledger_id] = TieredPlace(one, section.files_of(one.ledger_id))
        return found
