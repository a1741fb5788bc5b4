"""Moves copies of one ledger: so that its write sets span more racks and zones (``RackMoves``), or from fuller bookies to
emptier ones (``BalanceMoves``).

A move is a re-replication of a bookie that is there: its successor gets all copies first, durably, and then one compare-and-set
gives it the slot. Until then the metadata names the former bookie, which still holds everything, so no write set ever has fewer
than Qw copies. The caller holds the ledger's lock.

Only fragments are looked at that have an end for certain: all of a closed ledger, and of others all but the last two (protocol
rule 55). A move that fails is left to the next audit or balance: no copy is missing.

Ref: docs/rules.md, situation 89; DESIGN.md, "Copies move to more racks", "A balance moves copies".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.client.protocol.rereplicate_fragment import FragmentCopied, FragmentTask, RereplicateFragment
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.replication.balance_plan import BalancePlan, CopyMove, held_fragment
from bk_spark.replication.ledger_rereplication import RereplicatedLedger, RereplicationMeans

logger = logging.getLogger(__name__)


def movable_fragments(metadata: LedgerMetadata) -> Sequence[Fragment]:
    """The fragments of which copies may move."""
    return metadata.fragments if metadata.is_closed else metadata.fragments[:-2]


def is_in_few_racks(metadata: LedgerMetadata, racks: RackMap) -> bool:
    """Whether a move of a single copy would widen the spread of a fragment."""
    ensembles = {fragment.ensemble for fragment in movable_fragments(metadata)}
    return any(racks.wider_slot(ensemble, metadata.write_quorum) is not None for ensemble in ensembles)


async def moved_copy(
    means: RereplicationMeans, guard: str, metadata: LedgerMetadata, version: int, index: int, slot: int, target: str = ""
) -> FragmentCopied:
    """Move one copy of a fragment that has an end: to ``target``, or to a bookie with which the write sets span more.

    The result names a problem if no bookie took it. Raises what ``RereplicateFragment`` ends with.
    """
    last = last_entry_of(metadata, index)
    assert last is not None, "the fragment has an end"
    fragment = metadata.fragments[index]
    leaving, avoided = frozenset({fragment.ensemble[slot]}), means.avoided()
    task = FragmentTask(metadata, version, fragment, last, leaving, guard, avoided, must_widen=not target, target=target)
    copied: FragmentCopied = await means.perform(metadata, RereplicateFragment(task, means.limits, means.pace))
    return copied


class RackMoves:
    """Moves copies of one ledger. ``guard`` is the guard of its lock; ``racks`` gives what is registered now."""

    def __init__(self, means: RereplicationMeans, guard: str, racks: Callable[[], Awaitable[RackMap]]) -> None:
        self._means = means
        self._guard = guard
        self._racks = racks

    async def run(self, metadata: LedgerMetadata, version: int) -> RereplicatedLedger:
        """Move what may move. Raises NoSuchLedgerError."""
        done = RereplicatedLedger(metadata.ledger_id, True)
        for index in range(len(movable_fragments(metadata))):
            for _ in range(metadata.ensemble_size):
                racks = await self._racks()
                slot = racks.wider_slot(metadata.fragments[index].ensemble, metadata.write_quorum)
                copied = None if slot is None else await self._move(metadata, version, index, slot)
                if copied is None or copied.problem:
                    break
                metadata, version, done = copied.metadata, copied.version, done.plus(copied)
        return done

    async def _move(self, metadata: LedgerMetadata, version: int, index: int, slot: int) -> FragmentCopied | None:
        """None if it failed, or what others changed since is in its way."""
        try:
            copied = await moved_copy(self._means, self._guard, metadata, version, index, slot)
        except NoSuchLedgerError:
            raise
        except BookKeeperError as problem:
            logger.warning("ledger %d stays in too few racks: %s", metadata.ledger_id, problem)
            return None
        return copied


class BalanceMoves:
    """Moves copies of one closed ledger as ``plan`` wants it. ``guard`` is the guard of its lock.

    The plan is asked about each fragment as it is now, under the lock. Ledgers that are under way at once may share a plan, on
    one event loop: a move counts from its beginning on, and no longer if it fails.
    """

    def __init__(self, means: RereplicationMeans, guard: str, plan: BalancePlan) -> None:
        self._means = means
        self._guard = guard
        self._plan = plan

    async def run(self, metadata: LedgerMetadata, version: int) -> RereplicatedLedger:
        """Move what the plan wants to move. The result counts moved copies as fragments. A move that fails is the last one."""
        done = RereplicatedLedger(metadata.ledger_id, True)
        if not self._plan.knows(metadata.bookies):
            return done
        for index in range(len(metadata.fragments)):
            for _ in range(metadata.ensemble_size):
                move = self._plan.move_of(held_fragment(metadata, index))
                if move is None:
                    break
                try:
                    copied = await self._moved(move, metadata, version, index)
                except NoSuchLedgerError:
                    return done  # deleted meanwhile
                except BookKeeperError as problem:
                    return replace(done, is_whole=False, problem=f"ledger {metadata.ledger_id}: {problem}")
                if copied.problem:
                    self._plan.give_no_more(move.target)
                    return replace(done, is_whole=False, problem=f"ledger {metadata.ledger_id}: {copied.problem}")
                metadata, version, done = copied.metadata, copied.version, done.plus(copied)
        return done

    async def _moved(self, move: CopyMove, metadata: LedgerMetadata, version: int, index: int) -> FragmentCopied:
        """A move that was not made does not count for the plan."""
        is_made = False
        try:
            copied = await moved_copy(self._means, self._guard, metadata, version, index, move.slot, move.target)
            is_made = not copied.problem
            return copied
        finally:
            if not is_made:
                self._plan.failed(move)
