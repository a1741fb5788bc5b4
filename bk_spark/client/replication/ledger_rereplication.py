"""One ledger's fragments, one after the other: which of them may be copied now, and what to do about a tail that is open.

A fragment may be copied once it has an end: that of a closed ledger, or a fragment before the last one. The last one but one
of a ledger that is not closed counts as open while its bookies know less to be confirmed than it holds (protocol rule 55).

To be run under the ledger's lock. It knows neither loop nor connection: ``RereplicationMeans`` says how a state
machine is run, so that a simulation can run these decisions, too.

Ref: docs/rules.md, protocol rules 53 to 55.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bk_spark.client.protocol.last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.protocol.limits import CopyLimits, RecoverLimits
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.client.protocol.rereplicate_fragment import FragmentCopied, FragmentTask, RereplicateFragment
from bk_spark.client.protocol.state_machine import StateMachine
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookieUnavailableError, BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata


@dataclass(frozen=True, slots=True)
class RereplicatedLedger:
    """What became of one ledger. ``is_whole``: no fragment names a bookie that is leaving (the open one may name one that is
    registered), or the ledger is gone.
    """

    ledger_id: int
    is_whole: bool
    fragments: int = 0
    """Whose entries were copied, and whose ensemble was changed."""
    entries: int = 0
    """Copied; an entry counts once for each bookie that got it."""
    nbytes: int = 0
    problem: str = ""
    """Why it is not whole, in one sentence."""
    is_locked: bool = False
    """Somebody else works on it: nothing was done."""
    is_in_vain: bool = False
    """Entries were perhaps read, or copied to where nothing names them, and will be as often as it is tried again."""
    open_fragment: Fragment | None = None
    """It still grows, and names a bookie that is leaving: its writer should be given time."""

    def plus(self, copied: FragmentCopied) -> RereplicatedLedger:
        entries, nbytes = self.entries + copied.entries, self.nbytes + copied.nbytes
        return replace(
            self, fragments=self.fragments + 1, entries=entries, nbytes=nbytes, problem=self.problem or copied.problem
        )


@dataclass(frozen=True, slots=True)
class Leaving:
    """Whom to replace."""

    bookies: frozenset[str]
    alive: frozenset[str] = frozenset()
    """Those of them that merely lack entries, and get them back where there is no other bookie."""
    registered: frozenset[str] = frozenset()
    """Those of them that are there: a writer goes on with them, so its tail is neither waited for nor fenced for their sake."""

    @property
    def absent(self) -> frozenset[str]:
        return self.bookies - self.registered


@dataclass(frozen=True, slots=True)
class RereplicationMeans:
    """What the work is done with."""

    perform: Callable[[LedgerMetadata, StateMachine], Awaitable[Any]]
    """Runs an operation on a ledger to its end: its result, or its error raised."""
    limits: CopyLimits
    pace: ByteRate
    recover: RecoverLimits
    avoided: Callable[[], frozenset[str]]
    """Bookies to read from last."""


class LedgerRereplication:
    """Replaces the bookies that are ``leaving`` in one ledger. ``guard`` is that of its lock."""

    def __init__(self, means: RereplicationMeans, guard: str, leaving: Leaving) -> None:
        self._means = means
        self._guard = guard
        self._leaving = leaving
        self._restored: set[tuple[int, str]] = set()
        """Fragments, by their first entry, and bookies that have all of them again."""

    async def run(self, metadata: LedgerMetadata, version: int, fence: Fragment | None) -> RereplicatedLedger:
        """Copy what has an end; with ``fence``, the open fragment of an earlier result, give that one an end first.

        A fragment that fails does not keep the others from being copied. Raises NoSuchLedgerError, and what RecoverLedger does.
        """
        end = await self._open_from(metadata)
        tail = self._named(metadata.fragments[end:], self._leaving.absent)
        if tail is not None and tail == fence:
            recovery = RecoverLedger(metadata, version, self._means.recover)
            metadata, version = await self._means.perform(metadata, recovery)
            end, tail = len(metadata.fragments), None
        done = RereplicatedLedger(metadata.ledger_id, False, open_fragment=tail)
        for index in range(end):
            if self._named(metadata.fragments[index : index + 1], self._leaving.bookies) is not None:
                metadata, version, done = await self._copied(metadata, version, index, done)
        return self._judged(metadata, done)

    async def _copied(
        self, metadata: LedgerMetadata, version: int, index: int, done: RereplicatedLedger
    ) -> tuple[LedgerMetadata, int, RereplicatedLedger]:
        """The metadata afterwards. Borders of fragments that have an end never move: their indexes stay."""
        last = last_entry_of(metadata, index)
        assert last is not None, "the fragment has an end"
        means, fragment, leaving = self._means, metadata.fragments[index], self._leaving
        task = FragmentTask(metadata, version, fragment, last, leaving.bookies, self._guard, means.avoided(), leaving.alive)
        try:
            copied: FragmentCopied = await means.perform(metadata, RereplicateFragment(task, means.limits, means.pace))
        except NoSuchLedgerError:
            raise
        except BookKeeperError as problem:
            return metadata, version, replace(done, problem=done.problem or str(problem), is_in_vain=True)
        self._restored |= {(fragment.first_entry_id, bookie_id) for bookie_id in copied.restored}
        return copied.metadata, copied.version, done.plus(copied)

    async def _open_from(self, metadata: LedgerMetadata) -> int:
        """The index of the first fragment that counts as open; the number of fragments if none does."""
        last = len(metadata.fragments) - 1
        if metadata.is_closed:
            return last + 1
        if last == 0 or self._named(metadata.fragments[last - 1 : last], self._leaving.bookies) is None:
            return last
        confirmed = await self._last_add_confirmed(metadata)
        return last if confirmed >= metadata.last_fragment.first_entry_id - 1 else last - 1

    async def _last_add_confirmed(self, metadata: LedgerMetadata) -> int:
        """What bookies say is confirmed, not what follows from the fragments; nothing if too few of them answer."""
        timeout_ms = self._means.limits.reads.timeout_ms
        question = ReadLastAddConfirmed(metadata, timeout_ms=timeout_ms, floor=NO_ENTRY)
        try:
            return int(await self._means.perform(metadata, question))
        except BookieUnavailableError:
            return NO_ENTRY

    def _named(self, fragments: Sequence[Fragment], bookies: frozenset[str]) -> Fragment | None:
        """The first that names one of them which does not have everything again."""
        return next((one for one in fragments if self._bookies_of(one, bookies)), None)

    def _bookies_of(self, fragment: Fragment, bookies: frozenset[str]) -> set[str]:
        named = bookies.intersection(fragment.ensemble)
        return {one for one in named if (fragment.first_entry_id, one) not in self._restored}

    def _left(self, metadata: LedgerMetadata) -> Fragment | None:
        """One that is still to be copied, now or later. What a registered bookie should have of the tail nobody can say yet."""
        ended = metadata.fragments if metadata.is_closed else metadata.fragments[:-1]
        tail = metadata.fragments[len(ended) :]
        return self._named(ended, self._leaving.bookies) or self._named(tail, self._leaving.absent)

    def _judged(self, metadata: LedgerMetadata, done: RereplicatedLedger) -> RereplicatedLedger:
        name = f"ledger {metadata.ledger_id}"
        if done.problem:
            return replace(done, problem=f"{name}: {done.problem}")
        if done.open_fragment is not None:
            first = done.open_fragment.first_entry_id
            return replace(
                done, problem=f"{name} is not closed: its fragment from entry {first} on still belongs to its writer"
            )
        left = self._left(metadata)
        if left is not None:
            first = left.first_entry_id
            return replace(done, problem=f"{name}: its fragment from entry {first} on is new, or still belongs to its writer")
        return replace(done, is_whole=True)
