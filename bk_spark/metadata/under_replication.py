"""Which ledgers lack copies, and who works on which of them: Apache BookKeeper's under-replication znodes.

A **mark** names the bookies whose copies of a ledger are missing. Each new report is merged into it and raises its version,
also one that names nothing new; and a mark is removed only at the version that a worker saw before it began, so what is
reported while it works survives and the ledger is looked at once more.

Znode versions begin at 0 again when a mark is made anew. A worker that lost its lock could so remove a mark that it never saw;
``remove`` therefore takes a *guard*, whose existence is checked in the same transaction.

A lost answer (``MetadataUnavailableError``) may hide a change that took effect: every call here can simply be repeated.

Threads may share an ``UnderReplication``, and each ledger's lock (``ledger_locks.py``) is then held by one of them.

Ref: Apache BookKeeper's ZkLedgerUnderreplicationManager; docs/rules.md, protocol rule 56, situation 83; docs/formats.md.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata.ledger_locks import LedgerLocks
from bk_spark.metadata.protobuf_text import from_text, to_text
from bk_spark.metadata.store import (
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
)
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.under_replication_pb2 import LedgerRereplicationLayoutFormat, UnderreplicatedLedgerFormat

PAGE_MARKS = 1_000
"""Marks that are read, or made, at once: some hundred kilobytes."""

_TRANSACTION_MARKS = 200
"""Marks that one transaction makes: 400 znodes, some 50 KB, a twentieth of what a transaction may have."""

_ATTEMPTS = 100
"""How often one mark is tried again because somebody else changed it; each time means that somebody else got on."""

logger = logging.getLogger(__name__)

_PART = re.compile(r"[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Mark:
    """A ledger that lacks copies, as it was read."""

    ledger_id: int
    missing: tuple[str, ...]
    """The bookies whose copies are missing, in the order in which they were reported."""
    marked_ms: int
    """When it was first reported, by the store's own clock."""
    version: int


class UnderReplication:
    """The marks, the locks and the switch of one cluster. Nothing is read or made before it is needed.

    All raise MetadataUnavailableError.
    """

    def __init__(self, store: MetadataStore, znodes: Znodes) -> None:
        self._store = store
        self._znodes = znodes
        self._locks = LedgerLocks(store, znodes)
        self._is_prepared = False

    # --- marks

    def mark(self, ledger_id: int, missing: Collection[str]) -> bool:
        """Report that copies of a ledger are missing. True if it had no mark; one that it has grows, and gets a new version."""
        self._prepare()
        is_new = self._mark(ledger_id, missing)
        self._tell()
        return is_new

    def mark_many(self, missing: Mapping[int, Collection[str]]) -> int:
        """As ``mark`` for many ledgers, in a fraction of the time; how many had no mark. Those done when it raises stay."""
        self._prepare()
        new = 0
        for page in _pages(missing, _TRANSACTION_MARKS):
            new += self._mark_page({ledger_id: missing[ledger_id] for ledger_id in page})
            self._tell()
        return new

    def marks(self) -> Iterator[Mark]:
        """All marks, ascending by ledger id; at most ``PAGE_MARKS`` of them are read ahead.

        What is no mark is reported in the log and left out; the next report of its ledger replaces it.
        """
        for page in _pages(self._marked_ids(), PAGE_MARKS):
            found = self._store.get_many([self._znodes.under_replicated(ledger_id) for ledger_id in page])
            for ledger_id, value in zip(page, found, strict=True):
                mark = None if value is None else self._readable(ledger_id, value)
                if mark is not None:
                    yield mark

    def mark_of(self, ledger_id: int) -> Mark | None:
        """The ledger's mark, None if it has none; ``sync`` the store first where an absence is acted on.

        Raises CorruptionError for what is no mark.
        """
        found = self._store.get_many([self._znodes.under_replicated(ledger_id)])[0]
        return None if found is None else self._decoded(ledger_id, found)

    def decoded(self, ledger_id: int, found: Versioned) -> Mark:
        """A mark that was read together with other values. Raises CorruptionError."""
        return self._decoded(ledger_id, found)

    def count(self) -> int:
        """How many ledgers are marked; the marks themselves are not read."""
        return sum(1 for _ in self._marked_ids())

    def remove(self, mark: Mark, guard: str = "") -> bool:
        """Take away a mark whose ledger is whole again. False, and it stays, if it was reported again since ``mark`` was read.

        ``guard`` is the path of an ephemeral znode that this session made, under a name that nobody uses again, before it took
        the ledger's lock: False as well if it is gone, for then the lock went, too. True if somebody else removed the mark.
        """
        path = self._znodes.under_replicated(mark.ledger_id)
        checks: list[StoreChange] = [Check(guard)] if guard else []
        for deletions in ([Delete(path, mark.version), Delete(_parent(path))], [Delete(path, mark.version)]):
            try:
                self._store.transaction([*checks, *deletions])
            except TransactionFailedError as failure:
                if failure.index < len(checks) or isinstance(failure.reason, BadVersionError):
                    return False
                if failure.index == len(checks):  # the mark is gone
                    return True
                # Something else stands beside the mark: its directory stays.
            else:
                break
        self._remove_empty(_parent(_parent(path)))
        return True

    # --- locks: see ledger_locks.py

    def try_lock(self, ledger_id: int, owner: str) -> bool:
        """Take the ledger's lock. False if somebody holds it, another thread of this object included.

        ``owner`` is for people who look who works. The lock goes with the session: see ``holds_lock``.
        """
        self._prepare()
        return self._locks.try_lock(ledger_id, owner)

    def unlock(self, ledger_id: int) -> None:
        """Give the lock back; nothing if it is not held, or somebody else's by now."""
        self._locks.unlock(ledger_id)

    def holds_lock(self, ledger_id: int) -> bool:
        """Whether the lock that ``try_lock`` took is still there; the store is asked."""
        return self._locks.holds(ledger_id)

    def locks(self) -> dict[int, str]:
        """Who works on which ledgers now, in the whole cluster."""
        return self._locks.owners()

    # --- the switch

    def is_enabled(self) -> bool:
        """Whether marks are to be made and worked on; True unless ``disable`` was called."""
        return self._store.get_many([self._znodes.under_replication_disabled])[0] is None

    def enable(self) -> None:
        """Repeating it does no harm."""
        with contextlib.suppress(NoNodeError):
            self._store.delete(self._znodes.under_replication_disabled)

    def disable(self) -> None:
        """Auditors mark no lost bookies and workers begin no ledger, in any process, until ``enable``. May be repeated."""
        self._prepare()
        with contextlib.suppress(NodeExistsError):
            self._store.create(self._znodes.under_replication_disabled)

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` (from any thread, briefly) when marks came or grew, when it was enabled or disabled, and after a
        lost connection, until the store closes. There may be calls without a change. That marks went is not told.
        """
        self._store.watch(self._znodes.under_replication_changes, on_change)
        self._store.watch(self._znodes.under_replication_disabled, on_change)

    # --- marks, inside

    def _mark(self, ledger_id: int, missing: Collection[str]) -> bool:
        path = self._znodes.under_replicated(ledger_id)
        for _ in range(_ATTEMPTS):
            found = self._store.get_many([path])[0]
            try:
                self._store.transaction(self._marking(ledger_id, missing, found))
            except TransactionFailedError as failure:
                self._make_way(path, failure)
            else:
                return found is None
        raise MetadataConflictError(f"the mark of ledger {ledger_id}", f"{_ATTEMPTS} attempts to mark it lost")

    def _mark_page(self, missing: Mapping[int, Collection[str]]) -> int:
        """All at once; one by one where somebody else changes one of them meanwhile."""
        paths = {ledger_id: self._znodes.under_replicated(ledger_id) for ledger_id in missing}
        listed = self._listed(sorted({_parent(_parent(path)) for path in paths.values()}))
        known = [ledger_id for ledger_id in missing if _parent(paths[ledger_id]) in listed]
        found = dict(zip(known, self._store.get_many([paths[ledger_id] for ledger_id in known]), strict=True))
        marking = (self._marking(ledger_id, bookies, found.get(ledger_id)) for ledger_id, bookies in missing.items())
        try:
            self._store.transaction([change for changes in marking for change in changes])
        except TransactionFailedError:
            return sum(self._mark(ledger_id, bookies) for ledger_id, bookies in missing.items())
        return len(missing) - sum(value is not None for value in found.values())

    def _listed(self, directories: Iterable[str]) -> set[str]:
        """The paths below these directories, which are made where they are missing: cheaper than to ask for each mark."""
        paths: set[str] = set()
        for directory in directories:
            with contextlib.suppress(NoNodeError):  # it went right behind its creation
                self._store.ensure_path(directory)
            paths.update(f"{directory}/{name}" for name in self._children(directory))
        return paths

    def _marking(self, ledger_id: int, missing: Collection[str], found: Versioned | None) -> list[StoreChange]:
        """What makes the mark, or merges into the one that was found."""
        path = self._znodes.under_replicated(ledger_id)
        if found is None:
            return [Create(_parent(path)), Create(path, to_text(UnderreplicatedLedgerFormat(replica=dict.fromkeys(missing))))]
        known = self._readable(ledger_id, found) or Mark(ledger_id, (), found.modified_ms, found.version)
        merged = UnderreplicatedLedgerFormat(replica=dict.fromkeys([*known.missing, *missing]), ctime=known.marked_ms)
        return [SetValue(path, to_text(merged), found.version)]

    def _make_way(self, path: str, failure: TransactionFailedError) -> None:
        """Before a mark is tried again: its parents may have gone with another mark, or been left over from one."""
        if isinstance(failure.reason, NoNodeError):
            with contextlib.suppress(NoNodeError):  # one went right behind its creation
                self._store.ensure_path(_parent(_parent(path)))
        elif isinstance(failure.reason, NodeExistsError) and failure.index == 0:
            with contextlib.suppress(NoNodeError, NotEmptyError):
                self._store.delete(_parent(path))

    def _remove_empty(self, directory: str) -> None:
        """Directories without marks go. The store refuses that of one to which a mark came; a mark that is being made below one
        that went makes it again.
        """
        with contextlib.suppress(NoNodeError, NotEmptyError):
            while directory != self._znodes.under_replicated_ledgers and self._store.get(directory).children == 0:
                self._store.delete(directory)
                directory = _parent(directory)

    def _marked_ids(self) -> Iterator[int]:
        """As their directories spell them, ascending: a directory of the last level may be without its mark."""
        top = self._znodes.under_replicated_ledgers
        for first in self._parts(top):
            for second in self._parts(f"{top}/{first}"):
                for third in self._parts(f"{top}/{first}/{second}"):
                    for last in self._parts(f"{top}/{first}/{second}/{third}"):
                        yield int(first + second + third + last, 16)

    def _parts(self, path: str) -> list[str]:
        return [name for name in self._children(path) if _PART.fullmatch(name)]

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []

    def _readable(self, ledger_id: int, found: Versioned) -> Mark | None:
        try:
            return self._decoded(ledger_id, found)
        except CorruptionError as problem:
            logger.warning("%s; a new report of the ledger will replace it", problem)
            return None

    def _decoded(self, ledger_id: int, found: Versioned) -> Mark:
        what = f"the mark {self._znodes.under_replicated(ledger_id)}"
        value = from_text(found.value, UnderreplicatedLedgerFormat(), what)
        marked_ms = value.ctime if value.HasField("ctime") else found.modified_ms
        return Mark(ledger_id, tuple(value.replica), marked_ms, found.version)

    # --- znodes, inside

    def _tell(self) -> None:
        """Wake those who wait for work. If somebody else tells at the same time, that was after the marks of both came."""
        path = self._znodes.under_replication_changes
        with contextlib.suppress(BadVersionError):
            self._store.set(path, b"", self._store.get(path).version)

    def _prepare(self) -> None:
        """Make what belongs to every cluster. Raises ConfigError if somebody laid it out otherwise."""
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


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]
