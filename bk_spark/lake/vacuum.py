"""Gives back what no version of a log that can be read needs of its tier: records, snapshots, and files of our own.

It follows a vacuum of the log, in this order, each line complete before the next. ``oldest_version`` says what can be read.

1. Sections none of whose ledgers is listed by a version that can be read are given up: the head says so, then their records
   go.
2. The tags go that kept files for versions that cannot be read any more; then snapshots that are too old and have no name.
3. Files in folders of steps that are over go, if no snapshot and no section names them.
4. The head says for which vacuum of the log that was. Where nothing but snapshots became too old since, it first says that
   the tier was not vacuumed.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.lake.ports import TierFiles, TierTable
from bk_spark.lake.stored_tier import AgainError, StoredTier
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import BUCKET
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_records import NOT_NAMED, TierSection
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import ANY_VERSION, NoNodeError, find_children


@dataclass(frozen=True, slots=True)
class _Needed:
    """Ledgers that a version can list which can be read: from ``vacuumed`` on."""

    vacuumed: int
    listed: frozenset[int]
    """The ledgers of that version."""

    def any(self, section: TierSection, ledgers: Iterable[int]) -> bool:
        """Whether one of these ledgers of a section may be: one that is not ``listed`` was unlisted before, or is newer."""
        return section.version > self.vacuumed or any(one in self.listed or one == NOT_NAMED for one in ledgers)


_NEVER = -1
"""In the place of the version for which a tier was vacuumed."""


class TierVacuum:
    """Of the log ``name`` with the uid ``uid``. Any number may run at once, beside tierers."""

    def __init__(self, logs: LogStore, name: str, uid: str, table: TierTable, files: TierFiles) -> None:
        self._logs = logs
        self._stored = StoredTier(logs, name, uid)
        self._table = table
        self._files = files

    def run(self, before_ms: int) -> bool:
        """False where there is nothing to do, or a step comes first. Snapshots that were replaced before ``before_ms`` go.

        May be called again after any error. Raises as ``Tierer.run``.
        """
        return self._stored.until_done("vacuum its tier", lambda: self._try(before_ms))

    def _try(self, before_ms: int) -> bool:
        stand = self._stored.read()
        mark, vacuumed = stand.mark, stand.head.vacuumed_version
        if stand.step is not None or vacuumed != stand.head.oldest_version:
            return False
        if mark.vacuumed_version >= vacuumed:
            if self._table.is_expired(before_ms, vacuumed):
                self._note(_NEVER)  # so that the next run goes on where this one is cut short
                raise AgainError("the tier was said not to be vacuumed")
            return False
        needed = _Needed(vacuumed, self._listed(stand.head))
        oldest = self._first_needed(mark, needed)
        if oldest > mark.oldest:
            gone = replace(mark, oldest=oldest, released=max(mark.released, oldest), cleared=max(mark.cleared, oldest))
            self._stored.store.transaction([self._stored.set_head(stand, gone)])
            raise AgainError("sections were given up")
        self._delete_records(mark.oldest)
        if self._table.look().step != mark.last:
            return False  # a step puts it right
        self._table.expire(before_ms, vacuumed)
        self._sweep(mark, needed)
        self._note(vacuumed)
        return True

    def _note(self, version: int) -> None:
        """That the tier was vacuumed for this version of the log."""
        self._logs.names.change_head(self._stored.name, self._stored.uid, lambda head: _vacuumed(head, version))

    def _listed(self, head: Head) -> frozenset[int]:
        """The closed ledgers of ``vacuumed_version``: a step adds no others."""
        if not head.vacuumed_version:
            return frozenset()
        try:
            listing = self._logs.reader.listing(self._stored.name, self._stored.uid, head.vacuumed_version)
        except (ConfigError, CorruptionError):
            now = self._stored.read().head
            if (now.vacuumed_version, now.oldest_version) == (head.vacuumed_version, head.oldest_version):
                raise
            raise AgainError("the log was vacuumed meanwhile") from None
        return frozenset(one.ledger_id for one in listing.closed)

    def _first_needed(self, mark: TierMark, needed: _Needed) -> int:
        """The first section with a ledger that somebody can read; or whose rows the table has."""
        for numbers in chunks(range(mark.oldest, mark.first), READS_AT_ONCE):
            for number, section, _ in self._stored.sections(numbers[0], numbers[-1] + 1).numbered():
                if needed.any(section, (one.ledger_id for one in section.ledgers)):
                    return number
        return mark.first

    def _delete_records(self, oldest: int) -> None:
        """Of all sections below, also where an earlier run was cut short."""
        store, paths = self._stored.store, self._stored.paths
        for bucket in map(int, find_children(store, paths.tier_sections)):
            if bucket > oldest // BUCKET:
                continue
            here = paths.tier_section_bucket(bucket * BUCKET)
            for number in map(int, find_children(store, here)):
                if number < oldest:
                    with suppress(NoNodeError):
                        store.delete(paths.tier_section(number), ANY_VERSION)
            if bucket < oldest // BUCKET:
                with suppress(NoNodeError):
                    store.delete(here, ANY_VERSION)

    def _sweep(self, mark: TierMark, needed: _Needed) -> None:
        """No step up to the last can put a file into the table or a record any more: what nobody names now stays so."""
        named = set(self._table.paths())
        for numbers in chunks(range(mark.oldest, mark.sections), READS_AT_ONCE):
            for section in self._stored.sections(numbers[0], numbers[-1] + 1).sections:
                named |= {file.path for file in section.files if needed.any(section, file.ledgers)}
        self._files.sweep(mark.last.number, named)


def _vacuumed(head: Head, version: int) -> Head:
    assert head.tier is not None
    return replace(head, tier=replace(head.tier, vacuumed_version=version))
