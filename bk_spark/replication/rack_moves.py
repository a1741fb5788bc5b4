"""Moves copies of one ledger, so that its write sets span more racks and zones.

A move is a re-replication of a bookie that is there: its successor gets all copies first, durably, and then one compare-and-set
gives it the slot. Until then the metadata names the former bookie, which still holds everything, so no write set ever has fewer
than Qw copies. The caller holds the ledger's lock.

Only fragments are looked at that have an end for certain: all of a closed ledger, and of others all but the last two (protocol
rule 55). A move that fails is left to the next audit: no copy is missing.

Ref: docs/rules.md, situation 89; DESIGN.md, "Copies move to more racks".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.client.protocol.rereplicate_fragment import FragmentCopied, FragmentTask, RereplicateFragment
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.replication.ledger_rereplication import RereplicatedLedger, RereplicationMeans

logger = logging.getLogger(__name__)


def movable_fragments(metadata: LedgerMetadata) -> Sequence[Fragment]:
    """The fragments of which copies may move."""
    return metadata.fragments if metadata.is_closed else metadata.fragments[:-2]


def is_in_few_racks(metadata: LedgerMetadata, racks: RackMap) -> bool:
    """Whether a move of a single copy would widen the spread of a fragment."""
    ensembles = {fragment.ensemble for fragment in movable_fragments(metadata)}
    return any(racks.wider_slot(ensemble, metadata.write_quorum) is not None for ensemble in ensembles)


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
        last = last_entry_of(metadata, index)
        assert last is not None, "the fragment has an end"
        fragment = metadata.fragments[index]
        leaving, avoided = frozenset({fragment.ensemble[slot]}), self._means.avoided()
        task = FragmentTask(metadata, version, fragment, last, leaving, self._guard, avoided, must_widen=True)
        try:
            copied: FragmentCopied = await self._means.perform(
                metadata, RereplicateFragment(task, self._means.limits, self._means.pace)
            )
        except NoSuchLedgerError:
            raise
        except BookKeeperError as problem:
            logger.warning("ledger %d stays in too few racks: %s", metadata.ledger_id, problem)
            return None
        return copied
