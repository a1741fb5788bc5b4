"""The listing of a version, and how a commit changes it.

A *listing* is the ledgers of one version of the log, in log order: closed ledgers, then at most two open ones. A commit is
folded into the listing of the version below it, in this order:

1. Ends that the commit records turn the first open ledgers into closed ones. A ledger that ends without an entry leaves the
   listing: a leader that is displaced before its first entry would leave one there each time. The commit's ``total`` says so.
2. By the kind of the commit: an overwrite removes everything and adds its ledgers. A replacement or compaction puts its
   ledgers in the place of those that it removes, which are one stretch. A truncation removes the first ledgers. An append
   adds its ledgers at the end of the closed ones.
3. A ledger that the commit opens comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.errors import CorruptionError, MetadataConflictError
from bk_spark.log.stored.values import CommitKind, CommittedLedger, LogVersion, OpenLedger, Page


@dataclass(frozen=True, slots=True)
class Listing:
    """The ledgers of one version in log order: the closed ones, then the open ones."""

    closed: tuple[CommittedLedger, ...] = ()
    open: tuple[OpenLedger, ...] = ()


class ListingFold:
    """Builds a listing: takes one commit after the other."""

    def __init__(self, name: str, start: Listing) -> None:
        self._name = name
        self._closed = list(start.closed)
        self._open = list(start.open)

    def listing(self) -> Listing:
        return Listing(tuple(self._closed), tuple(self._open))

    def apply(self, commit: LogVersion, pages: Sequence[Page]) -> None:
        """Fold a commit in. Raises CorruptionError if it does not fit the version below it."""
        added = [ledger for page in pages for ledger in page.ledgers]
        if commit.kind is CommitKind.OVERWRITE:
            self._closed, self._open = added, []
        else:
            self._close(commit)
            self._change(commit, added, [one for page in pages for one in page.removed])
        if commit.opened is not None:
            self._open.append(OpenLedger(commit.opened, commit.version))

    def _close(self, commit: LogVersion) -> None:
        count = len(commit.closed)
        if [one.ledger_id for one in commit.closed] != [one.ledger_id for one in self._open[:count]]:
            raise self._damaged(commit, "it closes ledgers that are not the first open ones")
        self._closed += self._kept(commit)
        del self._open[:count]

    def _kept(self, commit: LogVersion) -> Sequence[CommittedLedger]:
        """The ends that stay listed: those that the commit counts. A version that counts empty ones, too, lists them."""
        counted = commit.total.ledgers - commit.added.ledgers + commit.removed.ledgers - len(self._closed)
        kept = with_entries(commit.closed)
        return kept if counted == len(kept) else commit.closed

    def _change(self, commit: LogVersion, added: list[CommittedLedger], removed: list[int]) -> None:
        if commit.kind is CommitKind.APPEND:
            self._closed += added
        elif commit.kind is CommitKind.TRUNCATE:
            del self._closed[: commit.removed.ledgers]
        else:
            try:
                start = position_of(self._name, self._closed, removed)
            except MetadataConflictError as problem:
                raise self._damaged(commit, str(problem)) from None
            self._closed[start : start + len(removed)] = added

    def _damaged(self, commit: LogVersion, problem: str) -> CorruptionError:
        return CorruptionError(f"version {commit.version} of log '{self._name}'", problem)


def with_entries(ends: Sequence[CommittedLedger]) -> tuple[CommittedLedger, ...]:
    """The ledgers among those that a commit ends which stay in the listing."""
    return tuple(one for one in ends if not one.is_empty)


def position_of(name: str, listed: Sequence[CommittedLedger], removed: Sequence[int]) -> int:
    """The index at which ``removed`` stands in the list. Raises MetadataConflictError unless it is one stretch of the list."""
    first = next((place for place, one in enumerate(listed) if one.ledger_id == removed[0]), 0)
    if [one.ledger_id for one in listed[first : first + len(removed)]] == list(removed):
        return first
    missing = sorted(set(removed) - {one.ledger_id for one in listed})
    if missing:
        raise MetadataConflictError(f"log '{name}'", f"it does not list ledger {missing[0]}, which is to be replaced")
    raise MetadataConflictError(f"log '{name}'", f"ledgers {list(removed)[:10]} are not one stretch of it in this order")
