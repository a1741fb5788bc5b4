"""Re-replicates one ledger: decides which of its fragments may be copied now, and what to do about an open tail.

A fragment may be copied once it has an end: every fragment of a closed ledger, and of others all but the last. The last but one
of an open ledger counts as open too, while its bookies do not know all of it to be confirmed (protocol rule 55).

The caller holds the ledger's lock. This module knows neither event loop nor connections: ``RereplicationMeans`` says how a
state machine is run, so that a simulation can run these decisions too.

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

Perform = Callable[[LedgerMetadata, StateMachine], Awaitable[Any]]
"""Runs a ledger's state machine to its end. Returns its result, or raises its error."""


@dataclass(frozen=True, slots=True)
class RereplicatedLedger:
    """The result of re-replicating one ledger."""

    ledger_id: int
    is_whole: bool
    """No fragment names a leaving bookie (an open one may name a registered one), or the ledger does not exist any more."""
    fragments: int = 0
    """Fragments that were copied and whose ensemble was changed."""
    entries: int = 0
    """Copied entries; an entry counts once for each bookie that got it."""
    nbytes: int = 0
    problem: str = ""
    """Why the ledger is not whole, in one sentence."""
    is_locked: bool = False
    """Somebody else holds the ledger's lock: nothing was done."""
    is_in_vain: bool = False
    """Entries may have been read, or copied to bookies that no metadata names; every further try will do that again."""
    open_fragment: Fragment | None = None
    """A fragment that still grows and names a leaving bookie: its writer should get time to replace that bookie."""

    def plus(self, copied: FragmentCopied) -> RereplicatedLedger:
        fragments, problem = self.fragments + 1, self.problem or copied.problem
        entries, nbytes = self.entries + copied.entries, self.nbytes + copied.nbytes
        return replace(self, fragments=fragments, entries=entries, nbytes=nbytes, problem=problem)


@dataclass(frozen=True, slots=True)
class Leaving:
    """The bookies to replace."""

    bookies: frozenset[str]
    alive: frozenset[str] = frozenset()
    """Those that are alive and only lack entries: without another bookie in their place they get their entries back."""
    registered: frozenset[str] = frozenset()
    """Those that are registered. A writer goes on with them, so no open tail is waited for or fenced because of them."""

    @property
    def absent(self) -> frozenset[str]:
        return self.bookies - self.registered


@dataclass(frozen=True, slots=True)
class RereplicationMeans:
    """What ``LedgerRereplication`` works with."""

    perform: Perform
    limits: CopyLimits
    pace: ByteRate
    recover: RecoverLimits
    avoided: Callable[[], frozenset[str]]
    """The bookies to read from last."""


class LedgerRereplication:
    """Replaces the bookies of ``leaving`` in one ledger. ``guard`` is the guard of the ledger's lock (``lock.py``)."""

    def __init__(self, means: RereplicationMeans, guard: str, leaving: Leaving) -> None:
        self._means = means
        self._guard = guard
        self._leaving = leaving
        self._restored: set[tuple[int, str]] = set()
        """Pairs of a fragment's first entry and a leaving bookie that holds all of that fragment again."""

    async def run(self, metadata: LedgerMetadata, version: int, fence: Fragment | None) -> RereplicatedLedger:
        """Re-replicate every fragment that has an end.

        ``fence`` is the ``open_fragment`` of an earlier result: if it is still open, the ledger is recovered first, unless an
        application owns it, whose writer replaces the bookie itself. A fragment that fails does not stop the others. Raises
        NoSuchLedgerError, and what RecoverLedger raises.
        """
        end = await self._open_from(metadata)
        tail = self._first_naming(self._leaving.absent, metadata.fragments[end:])
        if tail is not None and tail == fence and not metadata.application:
            recovery = RecoverLedger(metadata, version, self._means.recover)
            metadata, version = await self._means.perform(metadata, recovery)
            assert metadata.is_closed, "a recovery ends with a closed ledger"
            end, tail = len(metadata.fragments), None
        done = RereplicatedLedger(metadata.ledger_id, False, open_fragment=tail)
        for index in range(end):
            if self._first_naming(self._leaving.bookies, [metadata.fragments[index]]) is not None:
                metadata, version, done = await self._rereplicate_fragment(metadata, version, index, done)
        return self._with_verdict(done, metadata)

    async def _rereplicate_fragment(
        self, metadata: LedgerMetadata, version: int, index: int, done: RereplicatedLedger
    ) -> tuple[LedgerMetadata, int, RereplicatedLedger]:
        """Returns the new metadata. Fragments with an end keep their borders, so indexes stay valid."""
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
        if last == 0 or self._first_naming(self._leaving.bookies, [metadata.fragments[last - 1]]) is None:
            return last
        confirmed = await self._last_add_confirmed(metadata)
        return last if confirmed >= metadata.last_fragment.first_entry_id - 1 else last - 1

    async def _last_add_confirmed(self, metadata: LedgerMetadata) -> int:
        """What the bookies know to be confirmed, not what the fragments imply; NO_ENTRY if too few bookies answer."""
        timeout_ms = self._means.limits.reads.timeout_ms
        question = ReadLastAddConfirmed(metadata, timeout_ms=timeout_ms, floor=NO_ENTRY)
        try:
            return int(await self._means.perform(metadata, question))
        except BookieUnavailableError:
            return NO_ENTRY

    def _first_naming(self, bookies: frozenset[str], fragments: Sequence[Fragment]) -> Fragment | None:
        """The first fragment that names one of ``bookies`` which does not hold all of the fragment again."""
        for fragment in fragments:
            named = bookies.intersection(fragment.ensemble)
            if any((fragment.first_entry_id, bookie_id) not in self._restored for bookie_id in named):
                return fragment
        return None

    def _remaining(self, metadata: LedgerMetadata) -> Fragment | None:
        """A fragment that is still to be copied, now or later."""
        ended = metadata.fragments if metadata.is_closed else metadata.fragments[:-1]
        tail = metadata.fragments[len(ended) :]
        # What registered bookies should hold of an open tail is not known yet.
        return self._first_naming(self._leaving.bookies, ended) or self._first_naming(self._leaving.absent, tail)

    def _with_verdict(self, done: RereplicatedLedger, metadata: LedgerMetadata) -> RereplicatedLedger:
        """The result with ``is_whole`` set, or with the whole sentence of its problem."""
        name = f"ledger {metadata.ledger_id}"
        if done.problem:
            problem = f"{name}: {done.problem}"
        elif done.open_fragment is not None:
            first = done.open_fragment.first_entry_id
            problem = f"{name} is not closed: its fragment from entry {first} on still belongs to its writer"
        elif (left := self._remaining(metadata)) is not None:
            problem = f"{name}: its fragment from entry {left.first_entry_id} on is new, or still belongs to its writer"
        else:
            return replace(done, is_whole=True)
        return replace(done, problem=problem)
