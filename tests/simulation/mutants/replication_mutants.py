"""Bugs of re-replication: what it copies, when, to whom, and what it writes into the metadata.

Each takes one guard out of the shipped code for as long as its context lasts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.client.protocol import replace_bookies as replacing
from bk_spark.client.protocol import rereplicate_fragment
from bk_spark.client.protocol.copy_batches import CopyBatches
from bk_spark.client.protocol.force_adds import ForcedCopies
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.replace_bookies import ReplaceBookies
from bk_spark.client.protocol.rereplicate_fragment import CopyPhase, RereplicateFragment
from bk_spark.client.protocol.state_machine import SendAdd
from bk_spark.metadata.ledger_metadata import Fragment
from bk_spark.replication import copy_moves, ledger_rereplication
from bk_spark.replication.ledger_rereplication import LedgerRereplication
from bk_spark.wire.messages import Status
from tests.simulation.mutants.mutant import all_of

# --- which fragments


def the_open_tail_is_copied() -> Any:
    """Up to what is confirmed, as if it ended there."""
    last_entry_of = replacing.last_entry_of
    confirmed = [-1]

    async def open_from(self: Any, metadata: Any) -> int:
        confirmed[0] = await self._last_add_confirmed(metadata)
        return len(metadata.fragments)

    def last(metadata: Any, index: int) -> int:
        end = last_entry_of(metadata, index)
        return confirmed[0] if end is None else end

    return all_of(
        patch.object(LedgerRereplication, "_open_from", open_from),
        patch.object(ledger_rereplication, "last_entry_of", last),
        patch.object(replacing, "last_entry_of", lambda metadata, index: last(metadata, index)),
    )


def the_last_fragment_but_one_counts_as_closed() -> Any:
    async def confirmed(self: Any, metadata: Any) -> int:
        return 1 << 62

    return patch.object(LedgerRereplication, "_last_add_confirmed", confirmed)


# --- copies


def copies_need_not_be_durable() -> Any:
    original = RereplicateFragment._send

    def send(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        self._sent.clear()

    return patch.object(RereplicateFragment, "_send", send)


def a_refused_copy_counts() -> Any:
    original = RereplicateFragment._add_answered

    def answered(self: Any, event: Any, now_ms: int) -> None:
        original(self, replace(event, status=Status.OK), now_ms)

    return patch.object(RereplicateFragment, "_add_answered", answered)


def copies_are_ordinary_adds() -> Any:
    original = RereplicateFragment._send

    def send(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        self._commands = [replace(one, recovery=False) if isinstance(one, SendAdd) else one for one in self._commands]

    return patch.object(RereplicateFragment, "_send", send)


def joining_batches_drops_one() -> Any:
    original = CopyBatches.rest

    def rest(self: Any) -> Any:
        if len(self._waiting) > 1:
            del self._waiting[1]
        return original(self)

    return patch.object(CopyBatches, "rest", rest)


def copies_are_not_forced() -> Any:
    return patch.object(ForcedCopies, "force", lambda self, bookie_ids, now_ms: [])


def copies_count_in_whatever_boot() -> Any:
    return patch.object(ForcedCopies, "acked", lambda self, bookie_id, boot: None)


# --- the metadata


def a_slot_is_taken_whoever_has_it() -> Any:
    def change(self: Any, current: Any) -> Any:
        index = self._index_in(current)
        ensemble = list(current.fragments[index].ensemble)
        for slot, bookie_id in self.bookies:
            ensemble[slot] = bookie_id
        changed = Fragment(self.fragment.first_entry_id, tuple(ensemble))
        return replace(current, fragments=(*current.fragments[:index], changed, *current.fragments[index + 1 :]))

    return patch.object(ReplaceBookies, "__call__", change)


def changes_of_others_are_overwritten() -> Any:
    class Stale(ReplaceBookies):
        """Changes what the store held when the copying began."""

        seen: Any = None

        def __call__(self, current: Any) -> Any:
            object.__setattr__(self, "seen", self.seen or current)
            return super().__call__(self.seen)

    return patch.object(rereplicate_fragment, "ReplaceBookies", Stale)


def metadata_is_written_without_the_guard() -> Any:
    return patch.object(RereplicateFragment, "_guarded", lambda self, command: command)


def a_bookie_of_the_ensemble_may_be_chosen() -> Any:
    original = RereplicateFragment._choose

    def choose(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        if self._phase is CopyPhase.CHOOSE:
            self._commands[-1] = replace(self._commands[-1], ensemble=tuple("-" for _ in self._commands[-1].ensemble))

    return patch.object(RereplicateFragment, "_choose", choose)


# --- moves to more racks


def copies_move_for_nothing() -> Any:
    original = RereplicateFragment._choose

    def choose(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        if self._phase is CopyPhase.CHOOSE:
            self._commands[-1] = replace(self._commands[-1], must_widen=False)

    return all_of(
        patch.object(RereplicateFragment, "_choose", choose),
        patch.object(RackMap, "wider_slot", lambda self, ensemble, write_quorum: 0),
    )


def the_open_end_moves() -> Any:
    """All but the last fragment, which has no end that could be copied up to."""

    def movable(metadata: Any) -> Any:
        return metadata.fragments if metadata.is_closed else metadata.fragments[:-1]

    return patch.object(copy_moves, "movable_fragments", movable)


# --- garbage collection


def copies_that_came_since_are_deleted() -> Any:
    """A deletion is carried out although its decision is an old one."""
    return patch.object(LedgerStorage, "_may_have_new_copies", lambda self, ledger_id, decided_at: False)


def a_checkpoint_makes_copies_old() -> Any:
    """Only what no checkpoint covers yet counts as having come since the decision."""
    original = LedgerStorage._may_have_new_copies
    return patch.object(
        LedgerStorage, "_may_have_new_copies", lambda self, ledger_id, decided_at: original(self, ledger_id, None)
    )


def copies_that_are_here_already_go_unnoticed() -> Any:
    return patch.object(
        LedgerStorage, "_last_duplicate_at", property(lambda self: -1, lambda self, sequence: None), create=True
    )
