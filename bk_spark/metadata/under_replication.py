"""Apache BookKeeper's under-replication znodes: marks of ledgers that lack copies, their locks, and AutoRecovery's switch.

A **mark** names the bookies whose copies of a ledger are missing. Each new report is merged into the mark and raises its
version, even if it names nothing new. A mark is removed only at the version that a worker read before it began, so reports that
come in while it works survive, and the ledger is checked once more.

Znode versions begin at 0 again when a mark is made anew, so a worker that lost its lock could remove a mark that it never saw.
``remove`` therefore takes a *guard*, whose existence is checked in the same transaction.

A lost answer (``MetadataUnavailableError``) may hide a change that took effect: every call here can simply be repeated.

Threads may share an ``UnderReplication``; each ledger's lock is then held by one of them.

Ref: Apache BookKeeper's ZkLedgerUnderreplicationManager; docs/rules.md, protocol rule 56, situation 83; docs/formats.md.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata.ledger_locks import LedgerLocks
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetValue,
    StoreChange,
    TransactionFailedError,
    Versioned,
    find,
    find_children,
    parent_of,
)
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import LedgerRereplicationLayoutFormat, UnderreplicatedLedgerFormat

PAGE_MARKS = 1_000
"""Marks that are read at once: some hundred kilobytes."""

_TRANSACTION_MARKS = 200
"""Marks that one transaction makes: 400 znodes, some 50 KB, a twentieth of a transaction's limit."""

_ATTEMPTS = 100
"""Attempts at one mark that lose against other changes; with each lost attempt somebody else made progress."""

logger = logging.getLogger(__name__)

_PART = re.compile(r"[0-9a-f]{4}")
_DEPTH = 3
"""Directories above the one that is a marked ledger's own."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a ledger that lacks copies, as it was read."""

    ledger_id: int
    missing: tuple[str, ...]
    """The bookies whose copies are missing, in the order of the reports."""
    marked_ms: int
    """When it was first reported, by the store's own clock."""
    version: int


class UnderReplication(LedgerLocks):
    """The marks, the locks and the switch of one cluster. Nothing is read or created before it is needed.

    All methods raise MetadataUnavailableError.
    """

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        super().__init__(store, znodes)
        self._is_prepared = False

    def try_lock(self, ledger_id: int, owner: str) -> bool:
        self._prepare()
        return super().try_lock(ledger_id, owner)

    def mark(self, ledger_id: int, missing: Collection[str]) -> bool:
        """Report that copies of a ledger are missing. True if it had no mark; an existing mark grows and gets a new version."""
        self._prepare()
        is_new = self._mark(ledger_id, missing)
        self._wake_workers()
        return is_new

    def mark_many(self, missing: Mapping[int, Collection[str]]) -> int:
        """Like ``mark`` for many ledgers, but faster. Returns how many had no mark. If it raises, marks made so far stay."""
        self._prepare()
        new = 0
        for page in _pages(missing, _TRANSACTION_MARKS):
            new += self._mark_page({ledger_id: missing[ledger_id] for ledger_id in page})
            self._wake_workers()
        return new

    def marks(self, but: Container[int] = ()) -> Iterator[Mark]:
        """All marks but those of some ledgers, ascending by ledger id; at most ``PAGE_MARKS`` of them are read ahead.

        An unreadable mark is logged and left out; the next report of its ledger replaces it.
        """
        for page in _pages((one for one in self.marked_ids() if one not in but), PAGE_MARKS):
            found = self._store.get_many([self._znodes.under_replicated(ledger_id) for ledger_id in page])
            for ledger_id, value in zip(page, found, strict=True):
                mark = None if value is None else self._readable(ledger_id, value)
                if mark is not None:
                    yield mark

    def mark_of(self, ledger_id: int) -> Mark | None:
        """The ledger's mark; None if it has none. ``sync`` the store first to act on an absence.

        Raises CorruptionError for an unreadable mark.
        """
        found = find(self._store, self._znodes.under_replicated(ledger_id))
        return None if found is None else self.decoded(ledger_id, found)

    def decoded(self, ledger_id: int, found: Versioned) -> Mark:
        """The mark in a value that was read. Raises CorruptionError."""
        what = f"the mark {self._znodes.under_replicated(ledger_id)}"
        value = from_text(found.value, UnderreplicatedLedgerFormat(), what)
        marked_ms = value.ctime if value.HasField("ctime") else found.modified_ms
        return Mark(ledger_id, tuple(value.replica), marked_ms, found.version)

    def marked_ids(self) -> Iterator[int]:
        """The ids of the marked ledgers, ascending. No mark is read, and one of them may be gone."""
        for directory in self._directories():
            yield from self._ids_in(directory)

    def some_ids(self, most: int, choose: Callable[[int], int], but: Container[int] = ()) -> list[int]:
        """Up to ``most`` marked ledgers by chance, in random order, none of them in ``but``.

        Lists the names of as many directories as it takes, which have up to 65,536 marks each. No mark is read, and one of them
        may be gone. ``choose`` gives a random number from 0 to n - 1.
        """
        directories, found = list(self._directories()), list[int]()
        while directories and len(found) < most:
            directory = directories.pop(choose(len(directories)))
            ids = [ledger_id for ledger_id in self._ids_in(directory) if ledger_id not in but]
            while ids and len(found) < most:
                chosen = choose(len(ids))
                ids[chosen], ids[-1] = ids[-1], ids[chosen]
                found.append(ids.pop())
        return found

    def count(self) -> int:
        """The number of marked ledgers. Reads one small value for 65,536 of them, and neither marks nor names."""
        found = self._store.get_many(list(self._directories()))
        return sum(one.children for one in found if one is not None)

    def remove(self, mark: Mark, guard: str = "") -> bool:
        """Remove the mark of a repaired ledger. False, and it stays, if the ledger was reported again since ``mark`` was read.

        ``guard`` is the path of an ephemeral znode, of a name that is never used again, which this session created before it
        took the ledger's lock. If it is gone, so is the lock: False again. True if somebody else removed the mark.
        """
        path = self._znodes.under_replicated(mark.ledger_id)
        checks: list[StoreChange] = [Check(guard, ANY_VERSION)] if guard else []
        for deletions in ([Delete(path, mark.version), Delete(parent_of(path), ANY_VERSION)], [Delete(path, mark.version)]):
            try:
                self._store.transaction([*checks, *deletions])
            except TransactionFailedError as failure:
                if failure.index < len(checks) or isinstance(failure.reason, BadVersionError):
                    return False
                if failure.index == len(checks):  # the mark is gone
                    return True
                # Something else is beside the mark, so its directory stays.
            else:
                break
        self._remove_empty(parent_of(parent_of(path)))
        return True

    def candidates(self) -> int:
        """How many AutoRecovery processes take part: each stands for election as auditor. Reads one small value."""
        found = find(self._store, self._znodes.auditor_election)
        return 0 if found is None else found.children

    def is_enabled(self) -> bool:
        """Whether AutoRecovery is switched on: True unless ``disable`` was called."""
        return find(self._store, self._znodes.under_replication_disabled) is None

    def enable(self) -> None:
        """Undo ``disable``. May be repeated."""
        with contextlib.suppress(NoNodeError):
            self._store.delete(self._znodes.under_replication_disabled, ANY_VERSION)

    def disable(self) -> None:
        """Until ``enable``, auditors mark no lost bookies and workers begin no ledger, in any process. May be repeated."""
        self._prepare()
        with contextlib.suppress(NodeExistsError):
            self._store.create(self._znodes.under_replication_disabled)

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` (from any thread, briefly) when marks are added or grow, and after ``enable`` and ``disable``.

        It is also called after a lost connection, and may be called without a change, until the store closes. Removed marks
        are not reported.
        """
        self._store.watch(self._znodes.under_replication_changes, on_change)
        self._store.watch(self._znodes.under_replication_disabled, on_change)

    def _mark(self, ledger_id: int, missing: Collection[str]) -> bool:
        path = self._znodes.under_replicated(ledger_id)
        for _ in range(_ATTEMPTS):
            found = find(self._store, path)
            try:
                self._store.transaction(self._marking(ledger_id, missing, found))
            except TransactionFailedError as failure:
                self._make_way(path, failure)
            else:
                return found is None
        raise MetadataConflictError(f"the mark of ledger {ledger_id}", f"{_ATTEMPTS} attempts to mark it lost")

    def _mark_page(self, missing: Mapping[int, Collection[str]]) -> int:
        """Mark ledgers in one transaction, or one by one if somebody else changes a mark meanwhile.

        Most ledgers have no mark: marks are read only once the transaction that makes them all was refused.
        """
        paths = [self._znodes.under_replicated(ledger_id) for ledger_id in missing]
        for directory in sorted({parent_of(parent_of(path)) for path in paths}):
            with contextlib.suppress(NoNodeError):  # deleted again right after its creation
                self._store.ensure_path(directory)
        if self._has_marked(missing, [None] * len(missing)):
            return len(missing)
        found = self._store.get_many(paths)
        if self._has_marked(missing, found):
            return found.count(None)
        return sum(self._mark(ledger_id, bookies) for ledger_id, bookies in missing.items())

    def _has_marked(self, missing: Mapping[int, Collection[str]], found: Sequence[Versioned | None]) -> bool:
        """Whether all were marked in one transaction: ``found`` has the mark of each."""
        each = zip(missing.items(), found, strict=True)
        marking = (self._marking(ledger_id, bookies, mark) for (ledger_id, bookies), mark in each)
        try:
            self._store.transaction([change for changes in marking for change in changes])
        except TransactionFailedError:
            return False
        return True

    def _marking(self, ledger_id: int, missing: Collection[str], found: Versioned | None) -> list[StoreChange]:
        """The changes that create the mark, or merge into the one that was found."""
        path = self._znodes.under_replicated(ledger_id)
        if found is None:
            return [Create(parent_of(path)), Create(path, to_text(UnderreplicatedLedgerFormat(replica=dict.fromkeys(missing))))]
        known = self._readable(ledger_id, found) or Mark(ledger_id, (), found.modified_ms, found.version)
        merged = UnderreplicatedLedgerFormat(replica=dict.fromkeys([*known.missing, *missing]), ctime=known.marked_ms)
        return [SetValue(path, to_text(merged), found.version)]

    def _make_way(self, path: str, failure: TransactionFailedError) -> None:
        """Repair the parents of a mark before the next attempt: they may be deleted, or left over from another mark."""
        if isinstance(failure.reason, NoNodeError):
            with contextlib.suppress(NoNodeError):  # one was deleted again right after its creation
                self._store.ensure_path(parent_of(parent_of(path)))
        elif isinstance(failure.reason, NodeExistsError) and failure.index == 0:
            with contextlib.suppress(NoNodeError, NotEmptyError):
                self._store.delete(parent_of(path), ANY_VERSION)

    def _remove_empty(self, directory: str) -> None:
        """Delete directories without marks. The store refuses to delete one that just got a mark; ``_make_way`` creates a
        deleted one again for a new mark.
        """
        with contextlib.suppress(NoNodeError, NotEmptyError):
            while directory != self._znodes.under_replicated_ledgers and self._store.get(directory).children == 0:
                self._store.delete(directory, ANY_VERSION)
                directory = parent_of(directory)

    def _ids_in(self, directory: str) -> Iterator[int]:
        digits = directory.removeprefix(self._znodes.under_replicated_ledgers).replace("/", "")
        for name in filter(_PART.fullmatch, find_children(self._store, directory)):
            yield int(digits + name, 16)

    def _directories(self, path: str = "", depth: int = 0) -> Iterator[str]:
        """The paths that spell all but the last four digits of ids, ascending. Below each are up to 65,536 marked ledgers."""
        directory = path or self._znodes.under_replicated_ledgers
        if depth == _DEPTH:
            yield directory
            return
        for name in filter(_PART.fullmatch, find_children(self._store, directory)):
            yield from self._directories(f"{directory}/{name}", depth + 1)

    def _readable(self, ledger_id: int, found: Versioned) -> Mark | None:
        try:
            return self.decoded(ledger_id, found)
        except CorruptionError as problem:
            logger.warning("%s; a new report of the ledger will replace it", problem)
            return None

    def _wake_workers(self) -> None:
        """Write the znode that workers watch. A concurrent write will do: it happens after the marks of both writers."""
        path = self._znodes.under_replication_changes
        with contextlib.suppress(BadVersionError):
            self._store.set(path, b"", self._store.get(path).version)

    def _prepare(self) -> None:
        """Create the znodes that every cluster has. Raises ConfigError if the existing ones have another layout."""
        if self._is_prepared:
            return
        znodes = self._znodes
        for path in (znodes.under_replicated_ledgers, znodes.under_replicated_locks, znodes.under_replication_changes):
            self._store.ensure_path(path)
        with contextlib.suppress(NodeExistsError):
            self._store.create(znodes.under_replication_layout, to_text(_LAYOUT))
        layout = self._store.get(znodes.under_replication_layout).value
        if from_text(layout, LedgerRereplicationLayoutFormat(), f"the layout {znodes.under_replication_layout}") != _LAYOUT:
            remedy = f"bk_spark knows {to_text(_LAYOUT).decode()!r}: upgrade bk_spark, or choose another root"
            raise ConfigError(f"the layout of marks in {self._store.uri}", layout.decode(errors="replace"), remedy)
        self._is_prepared = True


_LAYOUT = LedgerRereplicationLayoutFormat(type="BASIC", version=1)


def _pages(ledger_ids: Iterable[int], size: int) -> Iterator[list[int]]:
    rest = iter(ledger_ids)
    while page := list(itertools.islice(rest, size)):
        yield page
