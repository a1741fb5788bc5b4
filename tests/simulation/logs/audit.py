"""What must hold of logs, under the numbers that a failure is reported with. Nothing here asks the code that is tested.

L0  everything comes to an end, and nothing fails but as it may      L5  readers see a growing prefix of what the log becomes
L1  a confirmed entry is in the log once, at the position told       L6  a ledger that a readable version lists is not deleted
L2  what was confirmed before another append began stands before it  L7  after the sweep no ledger is left that nobody lists
L3  an append is in the log only behind its writer's earlier ones    L8  nothing of an aborted or dropped job is visible
L4  a batch of an application is in the log once, or not at all      L9  head, versions and ledgers agree; what is closed stays

The *stream* is the order in which a stream reads a log: by commits. Compactions and truncations take nothing out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, LogVersion, Page, Totals
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.engines.invariants import Violation
from tests.simulation.logs.ledgers import ZNODES, Bookies
from tests.simulation.logs.tree import State


def require(holds: bool, invariant: str, problem: str) -> None:
    if not holds:
        raise Violation(invariant, problem)


@dataclass(frozen=True, slots=True)
class Commit:
    """A version with what it adds and removes, as ids of ledgers."""

    version: LogVersion
    added: tuple[CommittedLedger, ...]
    removed: tuple[int, ...]


@dataclass(slots=True)
class Fold:
    """A log's listing while its versions are folded; an open ledger has no end yet. In a duel nobody commits a REPLACE."""

    listing: list[int] = field(default_factory=list)
    ends: dict[int, CommittedLedger] = field(default_factory=dict)
    stream: list[int] = field(default_factory=list)
    """All ledgers, by commits."""
    end_row: int = 0

    def apply(self, commit: Commit) -> None:
        version = commit.version
        for one in version.closed:
            require(one.ledger_id in self.open, "L9", f"version {version.version} closes {one.ledger_id}, which is not open")
            self.ends[one.ledger_id] = one
            if one.last_entry_id == -1:
                self.listing.remove(one.ledger_id)
        added = [one.ledger_id for one in commit.added]
        self.ends.update((one.ledger_id, one) for one in commit.added)
        self._change(version.kind, added, commit.removed, version.removed.ledgers)
        if version.opened is not None:
            self.listing.append(version.opened)
        if version.kind is not CommitKind.COMPACT:
            self.stream += [*added, *([] if version.opened is None else [version.opened])]
        self._count(commit, sum(one.rows for one in version.closed))
        require(len(set(self.listing)) == len(self.listing), "L9", f"a ledger is listed twice: {self.listing}")

    def _change(self, kind: CommitKind, added: list[int], removed: Sequence[int], count: int) -> None:
        if kind is CommitKind.OVERWRITE:
            self.listing = added
        elif kind is CommitKind.TRUNCATE:
            del self.listing[:count]
        elif kind is CommitKind.APPEND:
            self.listing += added
        else:
            start = self.listing.index(removed[0]) if removed[0] in self.listing else 0
            require(self.listing[start : start + len(removed)] == list(removed), "L9", f"{removed} is not a stretch")
            self.listing[start : start + len(removed)] = added

    def _count(self, commit: Commit, closed_rows: int) -> None:
        self.end_row += closed_rows
        if commit.version.kind in (CommitKind.APPEND, CommitKind.OVERWRITE):
            self.end_row += sum(one.rows for one in commit.added)

    @property
    def open(self) -> list[int]:
        return [one for one in self.listing if one not in self.ends]

    @property
    def total(self) -> Totals:
        return Totals.of([self.ends[one] for one in self.listing if one in self.ends])


class LogAudit:
    """Follows one log, write by write. ``listings`` are those of every version, ``ends`` how ledgers were closed."""

    def __init__(self, uid: str, bookies: dict[int, Bookies]) -> None:
        self.paths = LogPaths(ZNODES.log(uid))
        self.fold = Fold()
        self.head = Head("")
        self.listings: list[tuple[int, ...]] = [()]
        self.commits: list[Commit] = []
        self.closed_at: dict[int, int] = {}
        """How many entries each closed ledger has."""
        self.is_released: Callable[[int, State], bool] = lambda ledger_id, state: False
        """Whether the rows of a ledger that bookies do not have any more are in the log's tier."""
        self._bookies = bookies
        self._ledger_paths: dict[str, int] = {}

    def ledger_created(self, ledger_id: int) -> None:
        self._ledger_paths[ZNODES.ledger(ledger_id)] = ledger_id

    def written(self, paths: Sequence[str], state: State) -> None:
        """The newest state, and what has changed in it. Raises Violation."""
        for path in paths:
            if path in self._ledger_paths:
                self._ledger_written(self._ledger_paths[path], path, state)
        if self.paths.head in paths and self.paths.head in state:
            self._head_written(Head.decode("head", state[self.paths.head].value), state)

    def entries(self, ledger_id: int) -> list[bytes]:
        return self._bookies[ledger_id].pushed[: self.closed_at[ledger_id]]

    @property
    def created(self) -> list[int]:
        """Every ledger that somebody set out to create."""
        return sorted(self._ledger_paths.values())

    def readable(self) -> set[int]:
        """What the versions list that may still be read."""
        return {one for listing in self.listings[self.head.oldest_version :] for one in listing}

    def _ledger_written(self, ledger_id: int, path: str, state: State) -> None:
        if path not in state:
            is_lost = ledger_id in self.readable() and not self.is_released(ledger_id, state)
            require(not is_lost, "L6", f"ledger {ledger_id} is deleted, a readable version lists it")
            return
        last = LedgerMetadata.decode(ledger_id, state[path].value).last_entry_id
        before = self.closed_at.get(ledger_id)
        require(before is None or last == before - 1, "L9", f"ledger {ledger_id} was closed with {before} entries: now {last}")
        if last is not None:
            self.closed_at[ledger_id] = last + 1

    def _head_written(self, head: Head, state: State) -> None:
        require(head.version in (self.head.version, self.head.version + 1), "L9", f"version {head.version} is not the next")
        require(head.writer.epoch >= self.head.writer.epoch, "L9", "the epoch falls")
        if head.version > self.head.version:
            self._committed(self._commit(head.version, state), head)
        self.head = head
        self._check_listed(state)

    def _committed(self, commit: Commit, head: Head) -> None:
        self.commits.append(commit)
        self.fold.apply(commit)
        fold, version = self.fold, commit.version
        require(fold.open == [one.ledger_id for one in head.writer.open_ledgers], "L9", f"open are {fold.open}: {head.writer}")
        require(
            len(fold.open) <= 2 and fold.listing[len(fold.listing) - len(fold.open) :] == fold.open, "L9", "open in between"
        )
        require(fold.total == head.total == version.total, "L9", f"{fold.total} is not {head.total}")
        require(fold.end_row == head.end_row == version.end_row, "L9", f"end row {fold.end_row}, not {head.end_row}")
        for one in (*commit.added, *version.closed):
            require(self.closed_at.get(one.ledger_id) == one.last_entry_id + 1, "L9", f"listed with a wrong end: {one}")
            require(one.rows == one.last_entry_id + 1, "L9", f"rows are not entries: {one}")
        self.listings.append(tuple(fold.listing))

    def _commit(self, number: int, state: State) -> Commit:
        version = LogVersion.decode("version", state[self.paths.version(number)].value)
        job = self.paths.job(version.job_id)
        pages = [Page.decode("page", state[job.page(index)].value) for index in range(version.pages)]
        added = tuple(one for page in pages for one in page.ledgers)
        return Commit(version, added, tuple(one for page in pages for one in page.removed))

    def _check_listed(self, state: State) -> None:
        missing = [one for one in self.listings[-1] if ZNODES.ledger(one) not in state]
        gone = [one for one in missing if not self.is_released(one, state)]
        require(not gone, "L6", f"version {self.head.version} lists ledgers that are gone: {gone}")
