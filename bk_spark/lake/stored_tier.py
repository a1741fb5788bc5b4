"""What the metadata store has of one log's tier, read and changed. Every change rests on what was read.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError, NoSuchLogError, State
from bk_spark.lake.plan import section_after
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.names import decode_head
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.tier_records import DataFile, LedgerContent, TieredLedger, TierSection, TierStep
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import SetValue, StoreChange, StoreError, TransactionFailedError, Versioned

_TRIES = 50
"""Each further try means that a commit, another tierer or the catalog came between, or that a line of a step is done."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What one try has read of the metadata store."""

    head: Head
    head_version: int
    step: TierStep | None
    step_version: int

    @property
    def mark(self) -> TierMark:
        assert self.head.tier is not None, "a log without a tier has no tierer"
        return self.head.tier


@dataclass(frozen=True, slots=True)
class Sections:
    """Some sections, from number ``first`` on, and the versions of their znodes."""

    first: int
    sections: tuple[TierSection, ...]
    versions: tuple[int, ...]

    def numbered(self) -> Iterator[tuple[int, TierSection, int]]:
        numbers = range(self.first, self.first + len(self.sections))
        return zip(numbers, self.sections, self.versions, strict=True)

    def expected(self, ledgers: Iterable[TieredLedger] = ()) -> dict[int, LedgerContent]:
        """What their ledgers and some others hold."""
        own = (ledger for section in self.sections for ledger in section.ledgers)
        return {one.ledger_id: one.content for one in (*own, *ledgers)}

    def changed(self, paths: LogPaths, files: Sequence[DataFile], gone: frozenset[str]) -> list[SetValue]:
        """The changes after which ``files`` stand in the place of ``gone`` ones."""
        changes: list[SetValue] = []
        for number, section, version in self.numbered():
            after = section_after(section, files, gone)
            if after != section:
                changes.append(SetValue(paths.tier_section(number), after.encode(), version))
        return changes


class AgainError(Exception):
    """Something was done, by this process or another one: look again."""


class StoredTier:
    """That of the log ``name`` with the uid ``uid``."""

    def __init__(self, logs: LogStore, name: str, uid: str) -> None:
        self.logs = logs
        self.store = logs.store
        self.paths = logs.names.paths(uid)
        self.name, self.uid = name, uid

    def until_done(self, what: str, one_try: Callable[[], bool]) -> bool:
        """Try again where something came between, or was done. Returns what ``one_try`` does."""
        last: Exception | None = None
        for _ in range(_TRIES):
            try:
                return one_try()
            except (AgainError, StoreError, TransactionFailedError) as moved:
                last = moved
        assert last is not None, "each try returned or raised"
        problem = f"{_TRIES} tries to {what} each met another change, or no answer (the last one: {last.__cause__ or last})"
        raise MetadataConflictError(f"log '{self.name}'", f"{problem}: try again later") from last

    def read(self) -> Stand:
        """Raises NoSuchLogError, ConfigError for a log without a tier."""
        self.store.sync(self.paths.head)
        step, head = self.store.get_many([self.paths.tier_step, self.paths.head])
        if head is None:
            raise NoSuchLogError(self.name)
        decoded = decode_head(self.name, head)
        if decoded.tier is None:
            raise ConfigError(f"the tier of log '{self.name}'", State("missing"), "set one first")
        what = f"the step of the tier of log '{self.name}'"
        if step is None:
            raise CorruptionError(what, "it is missing from the metadata store")
        return Stand(decoded, head.version, TierStep.decode(what, step.value) if step.value else None, step.version)

    def sections(self, first: int, beyond: int) -> Sections:
        """Raises AgainError where a vacuum has given one of them up since; CorruptionError where a record is missing."""
        found = self.store.get_many([self.paths.tier_section(number) for number in range(first, beyond)])
        decoded = [self._decode_section(number, stored) for number, stored in enumerate(found, first)]
        return Sections(first, tuple(section for section, _ in decoded), tuple(version for _, version in decoded))

    def set_head(self, stand: Stand, mark: TierMark) -> StoreChange:
        return SetValue(self.paths.head, replace(stand.head, tier=mark).encode(), stand.head_version)

    def set_step(self, stand: Stand, value: bytes) -> StoreChange:
        return SetValue(self.paths.tier_step, value, stand.step_version)

    def _decode_section(self, number: int, stored: Versioned | None) -> tuple[TierSection, int]:
        what = f"section {number} of the tier of log '{self.name}'"
        if stored is None:
            if number < self.read().mark.oldest:
                raise AgainError("sections were given up")
            raise CorruptionError(what, "it is missing from the metadata store")
        return TierSection.decode(what, stored.value), stored.version
