"""Ledgers that others keep: protocol rule 45, storage rules 8 and 10, situation 65."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.space.garbage_collection import METADATA_EXISTS
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerState
from tests.memory_store import MemoryStore
from tests.unit.bookie.space.gc_cluster import BOOKIE_ID, OTHERS, ZNODES, GcCluster


class Rounds(GcCluster):
    def __init__(self) -> None:
        super().__init__()
        self.ledgers = OverReplicatedLedgers(self.local, self.cluster)
        self.replicator = MemoryStore(self.store._tree)

    def round(self, go_on: Callable[[], bool] = lambda: True) -> int:
        return self.ledgers.collect(go_on)

    def replicate_away(self, ledger_id: int, *, closed: bool = True) -> None:
        """A ledger of ours, of which others have taken over all fragments."""
        self.create(ledger_id, ensemble=OTHERS)
        self.storage.put(ledger_id)
        if closed:
            self.close(ledger_id)

    def locks(self) -> list[str]:
        return self.store.children(ZNODES.under_replicated_locks)


@pytest.fixture
def gc() -> Rounds:
    return Rounds()


def test_a_closed_ledger_that_names_this_bookie_nowhere_is_deleted_and_its_tombstone_waits_for_the_metadata(gc: Rounds) -> None:
    gc.replicate_away(1)
    assert gc.round() == 1
    assert gc.storage.deletions == [(1, METADATA_EXISTS)]
    assert gc.locks() == []


@pytest.mark.parametrize("state", ["open", "in recovery"])
def test_a_ledger_that_is_not_closed_stays(gc: Rounds, state: str) -> None:
    gc.replicate_away(1, closed=False)
    if state == "in recovery":
        gc.write(replace(gc.metadata(1), state=LedgerState.IN_RECOVERY))
    assert gc.round() == 0
    assert gc.storage.deletions == []


def test_a_ledger_of_which_any_fragment_names_this_bookie_stays(gc: Rounds) -> None:
    for ledger_id, ours in enumerate([0, 5, 8]):
        gc.create(ledger_id, ensemble=(BOOKIE_ID, *OTHERS[:2]) if ours == 0 else OTHERS)
        metadata = gc.metadata(ledger_id)
        for first in (5, 8):
            metadata = metadata.with_ensemble(first, (BOOKIE_ID, *OTHERS[:2]) if ours == first else OTHERS)
        gc.write(metadata.closed_at(9, 100))
        gc.storage.put(ledger_id)
    assert gc.round() == 0


def test_a_ledger_that_is_marked_as_lacking_copies_stays(gc: Rounds) -> None:
    gc.replicate_away(1)
    gc.replicate_away(2)
    gc.replicator.create(ZNODES.under_replicated(1), b'replica: "bookie-2"\n', make_parents=True)
    assert gc.round() == 1
    assert gc.locks() == []


def test_a_ledger_that_others_have_locked_stays_and_keeps_its_lock(gc: Rounds) -> None:
    gc.replicate_away(1)
    gc.replicate_away(2)
    gc.replicator.create(ZNODES.under_replicated_lock(1), b"", ephemeral=True, make_parents=True)
    assert gc.round() == 1
    assert gc.locks() == ["urL0000000001"]
    gc.replicator.close()
    assert gc.round() == 1


def test_the_lock_is_held_from_before_the_decision_until_the_deletion_is_durable(gc: Rounds) -> None:
    gc.replicate_away(1)
    seen: list[list[str]] = []
    delete, get_many = gc.storage.delete, gc.store.get_many
    gc.store.get_many = lambda paths: (seen.append(gc.locks()), get_many(paths))[1]  # type: ignore[method-assign]
    gc.ledgers._local = replace(gc.local, delete_ledger=lambda *one: (seen.append(gc.locks()), delete(*one))[1])
    gc.round()
    assert seen == [[], ["urL0000000001"], ["urL0000000001"]]
    assert gc.locks() == []


def test_the_metadata_is_read_again_under_the_lock_after_a_sync(gc: Rounds) -> None:
    """A replicator gave the ledger back to this bookie between the first look and the lock; the follower lags behind that."""
    gc.replicate_away(1)
    create = gc.store.create

    def lose_a_race(path: str, value: bytes = b"", **more: bool) -> None:
        gc.store.lag()
        gc.write(gc.metadata(1).with_ensemble(0, (BOOKIE_ID, *OTHERS[:2])))
        create(path, value, **more)

    gc.store.create = lose_a_race  # type: ignore[method-assign]
    assert gc.round() == 0
    assert gc.storage.deletions == []


def test_a_follower_that_lags_does_not_show_a_ledger_as_over_replicated(gc: Rounds) -> None:
    gc.replicate_away(1)
    gc.store.lag()
    gc.write(gc.metadata(1).with_ensemble(0, (BOOKIE_ID, *OTHERS[:2])))
    assert gc.round() == 0


def test_ledgers_in_limbo_or_without_data_or_without_metadata_stay(gc: Rounds) -> None:
    gc.replicate_away(1)
    gc.storage.limbo = Limbo(100, settled_through=100, unsettled=frozenset({1}))
    gc.replicate_away(2)
    gc.storage.put(2, batches=0)
    gc.storage.put(3)
    assert gc.round() == 0


def test_metadata_that_cannot_be_read_says_nothing(gc: Rounds) -> None:
    gc.store.create(ZNODES.ledger(1), b"junk", make_parents=True)
    gc.store.create(ZNODES.ledger(2), b"BookieMetadataFormatVersion\t9\n", make_parents=True)
    gc.storage.put(1, 2)
    gc.replicate_away(3)
    assert gc.round() == 1


def test_a_deletion_that_is_refused_frees_the_lock_and_waits_for_another_round(gc: Rounds) -> None:
    gc.replicate_away(1)
    gc.storage.refuses = True
    assert (gc.round(), gc.locks()) == (0, [])
    gc.storage.refuses = False
    assert gc.round() == 1


def test_a_lock_whose_creation_had_no_answer_is_taken_up_and_released_by_the_next_round(gc: Rounds) -> None:
    gc.replicate_away(1)
    create = gc.store.create

    def lose_reply(path: str, value: bytes = b"", **more: bool) -> None:
        create(path, value, **more)
        raise MetadataUnavailableError("memory://", "no answer")

    gc.store.create = lose_reply  # type: ignore[method-assign]
    with pytest.raises(MetadataUnavailableError):
        gc.round()
    gc.store.create = create  # type: ignore[method-assign]
    assert gc.locks() == ["urL0000000001"]
    assert (gc.round(), gc.locks()) == (1, [])


def test_a_store_that_does_not_answer_deletes_nothing_more(gc: Rounds) -> None:
    for ledger_id in (1, 2):
        gc.replicate_away(ledger_id)
    for answered in range(2):
        gc.store.failing, gc.store.fails_after = "get_many", answered
        with pytest.raises(MetadataUnavailableError):
            gc.round()
        assert (gc.storage.deletions, gc.locks()) == ([], [])


def test_a_round_that_is_told_to_stop_begins_nothing_new(gc: Rounds) -> None:
    for ledger_id in (1, 2, 3):
        gc.replicate_away(ledger_id)
    answers = iter([True, False])
    assert gc.round(lambda: next(answers)) == 1


def test_a_lock_that_could_not_be_given_back_is_by_the_next_round_though_the_ledger_is_deleted(gc: Rounds) -> None:
    """Else nobody could re-replicate the ledger for as long as this bookie lives."""
    gc.replicate_away(1)
    delete = gc.store.delete

    def unanswered(path: str, version: int | None = None) -> None:
        raise MetadataUnavailableError("memory://", "no answer")

    gc.store.delete = unanswered  # type: ignore[method-assign]
    with pytest.raises(MetadataUnavailableError):
        gc.round()
    assert gc.storage.deletions == [(1, METADATA_EXISTS)]
    gc.storage.put(1, batches=0)
    gc.store.delete = delete  # type: ignore[method-assign]
    assert gc.locks() == ["urL0000000001"]
    assert gc.round() == 0
    assert gc.locks() == []
