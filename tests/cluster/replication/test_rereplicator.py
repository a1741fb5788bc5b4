"""Re-replication over real bookies. Ref: protocol rules 53 to 55; situations 40 and 76."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver.client_context import EnsembleChoice
from bk_spark.client.protocol.placement.choose_bookies import Candidate
from bk_spark.client.protocol.placement.rack_spread import location_of, spread_of
from bk_spark.entries.digest import master_key
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads, result_of

HASTY = AutoRecoveryConfig(open_fragment_grace_s=0.05, retry_s=0.2)


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def rereplicator(client: BookKeeper) -> Rereplicator:
    return _rereplicator(client)


def _rereplicator(client: BookKeeper, marks: UnderReplication | None = None) -> Rereplicator:
    return Rereplicator(client.context, HASTY, marks)


def _closed(client: BookKeeper, sizes: tuple[int, int, int], entries: int = 20, password: bytes = b"") -> LedgerMetadata:
    with client.create_ledger(*sizes, password=password) as writer:
        if entries:
            writer.append_batch([b"%d" % one for one in range(entries)])
    return client.ledger_metadata(writer.ledger_id)


def held(client: BookKeeper, metadata: LedgerMetadata, fragment: Fragment, slot: int, last: int) -> list[int]:
    """The entries of a fragment that a slot's bookie gives, asked alone, and again where it cut its answer short."""
    pattern = metadata.slot_pattern(slot)
    request = ReadRequest(
        fragment.ensemble[slot],
        metadata.ledger_id,
        master_key(metadata.password),
        fragment.first_entry_id,
        last,
        pattern,
        1 << 20,
    )

    async def ask() -> list[int]:
        bookie = client.context.bookies.bookie(request.bookie_id)
        found: list[int] = []
        first: int | None = fragment.first_entry_id
        while first is not None:
            asked, first = replace(request, first=first), None
            async for reply in bookie.read(asked):
                if isinstance(reply, ReadBatch):
                    header = reply.batch.header
                    found += header.pattern.ids(header.first_entry_id, header.last_entry_id).tolist()
                elif isinstance(reply, ReadEnd) and reply.status is Status.OK and asked.first < reply.next_entry_id <= last:
                    first = reply.next_entry_id
        return found

    return client.context.submit(ask()).result(DEADLINE_S)


def assert_whole(client: BookKeeper, ledger_id: int, gone: Collection[str]) -> None:
    """Every bookie that the metadata names holds what it should, and none of ``gone`` is named."""
    metadata = client.ledger_metadata(ledger_id)
    assert metadata.last_entry_id is not None
    assert not {one for fragment in metadata.fragments for one in fragment.ensemble}.intersection(gone)
    for fragment, first, last in metadata.fragment_ranges(metadata.last_entry_id):
        for slot in range(metadata.ensemble_size):
            wanted = metadata.slot_pattern(slot).ids(first, last).tolist()
            assert held(client, metadata, fragment, slot, last) == wanted


def assert_leaves(client: BookKeeper, rereplicator: Rereplicator, metadata: LedgerMetadata, leaving: str, entries: int) -> None:
    """The only fragment of a closed ledger is copied from the bookie, readers find all, and a second try has nothing to do."""
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving}))
    assert (done.is_whole, done.fragments, done.problem) == (True, 1, "")
    assert_whole(client, metadata.ledger_id, {leaving})
    with client.open_ledger(metadata.ledger_id, b"secret") as reader:
        assert payloads(reader) == [b"%d" % one for one in range(entries)]
    again = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving}))
    assert again == RereplicatedLedger(metadata.ledger_id, True)


@pytest.mark.parametrize("entries", [0, 20])
def test_entries_with_one_copy_each_leave_a_bookie_that_runs(
    client: BookKeeper, rereplicator: Rereplicator, entries: int
) -> None:
    """Situation 76; protocol rule 54 where there are no entries."""
    metadata = _closed(client, (2, 1, 1), entries, b"secret")
    assert_leaves(client, rereplicator, metadata, metadata.last_fragment.ensemble[1], entries)


def test_the_last_fragment_but_one_counts_as_open_while_bookies_know_less_to_be_confirmed(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator
) -> None:
    """Protocol rule 55: the new ensemble was not told anything yet, so the fragment before is left to its writer."""
    with client.create_ledger() as writer:
        writer.append_batch([b"%d" % one for one in range(10)])
        metadata = client.ledger_metadata(writer.ledger_id)
        ensemble = metadata.last_fragment.ensemble
        spare = next(one.bookie_id for one in wide_cluster.bookies if one.bookie_id not in ensemble)
        changed = replace(metadata, fragments=(*metadata.fragments, Fragment(15, (spare, *ensemble[1:]))))
        path = client.znodes.ledger(writer.ledger_id)
        client.metadata_store.set(path, changed.encode(), client.metadata_store.get(path).version)
        done = result_of(client, rereplicator.rereplicate(writer.ledger_id, {ensemble[0]}))
        assert done.open_fragment == metadata.last_fragment
        assert client.ledger_metadata(writer.ledger_id) == changed
        client.metadata_store.set(path, metadata.encode(), client.metadata_store.get(path).version)


def test_a_ledger_that_is_fenced_or_in_recovery_is_copied_like_any_other(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator
) -> None:
    """Situation 40: fence, then re-replicate."""
    writer = client.create_ledger()
    writer.append_batch([b"%d" % one for one in range(10)])
    ledger_id, leaving = writer.ledger_id, writer.metadata.last_fragment.ensemble[2]
    with client.open_ledger(ledger_id) as reader:
        assert result_of(client, rereplicator.rereplicate(ledger_id, {leaving})).is_whole
        assert payloads(reader) == [b"%d" % one for one in range(10)]
    assert_whole(client, ledger_id, {leaving})


def test_a_ledger_that_somebody_else_works_on_is_left_alone(client: BookKeeper, rereplicator: Rereplicator) -> None:
    """Situation 83."""
    metadata = _closed(client, (3, 3, 2))
    leaving = metadata.last_fragment.ensemble[0]
    other = UnderReplication(client.metadata_store, client.znodes)
    assert other.try_lock(metadata.ledger_id, "somebody else")
    try:
        done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving}))
        assert (done.is_whole, done.is_locked) == (False, True)
        assert client.ledger_metadata(metadata.ledger_id) == metadata
    finally:
        other.unlock(metadata.ledger_id)
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving})).is_whole
    assert metadata.ledger_id not in other.locks()


def test_a_ledger_that_does_not_exist_lacks_nothing(client: BookKeeper, rereplicator: Rereplicator) -> None:
    metadata = _closed(client, (3, 3, 2))
    client.delete_ledger(metadata.ledger_id)
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {metadata.last_fragment.ensemble[0]}))
    assert done == RereplicatedLedger(metadata.ledger_id, True)


# --- marks


def test_a_mark_goes_with_the_last_missing_copy_and_stays_if_it_was_reported_again(
    client: BookKeeper, rereplicator: Rereplicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 56."""
    metadata = _closed(client, (3, 3, 2))
    leaving = metadata.last_fragment.ensemble[0]
    marks = UnderReplication(client.metadata_store, client.znodes)
    marks.mark(metadata.ledger_id, ["a bookie that is gone"])
    finish = rereplicator._lock.finish
    monkeypatch.setattr(rereplicator._lock, "finish", lambda taken: marks.mark(metadata.ledger_id, [leaving]) or finish(taken))
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id))
    assert done is not None
    assert (done.is_whole, "again" in done.problem) == (False, True)
    assert marks.mark_of(metadata.ledger_id) is not None
    monkeypatch.undo()
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id))
    assert done is not None
    assert done.is_whole
    assert marks.mark_of(metadata.ledger_id) is None
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id)) == RereplicatedLedger(metadata.ledger_id, True)


def test_a_bookie_that_is_marked_and_has_everything_is_not_copied(client: BookKeeper, rereplicator: Rereplicator) -> None:
    metadata = _closed(client, (3, 3, 2))
    marks = UnderReplication(client.metadata_store, client.znodes)
    marks.mark(metadata.ledger_id, metadata.last_fragment.ensemble[:2])
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id))
    assert done == RereplicatedLedger(metadata.ledger_id, True)
    assert client.ledger_metadata(metadata.ledger_id) == metadata
    assert marks.mark_of(metadata.ledger_id) is None


def test_the_session_of_a_copier_that_stood_still_changes_nothing_any_more(
    client: BookKeeper, rereplicator: Rereplicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard is gone, so its compare-and-set is refused; the next try has a new one. Protocol rule 45, situation 83."""
    metadata = _closed(client, (3, 3, 2))
    leaving = metadata.last_fragment.ensemble[0]
    take = rereplicator._lock.take

    def taken_and_lost(ledger_id: int) -> object:
        taken = take(ledger_id)
        assert taken is not None
        client.metadata_store.delete(taken.guard, ANY_VERSION)
        return taken

    monkeypatch.setattr(rereplicator._lock, "take", taken_and_lost)
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving}))
    assert not done.is_whole
    assert client.ledger_metadata(metadata.ledger_id) == metadata
    monkeypatch.undo()
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving})).is_whole
    assert_whole(client, metadata.ledger_id, {leaving})


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2)])
def test_copies_move_to_racks_that_hold_none_and_all_entries_are_there_afterwards(
    client: BookKeeper, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Situation 89: the mark names nobody; it goes with the last move, and a second one moves nothing."""
    marks = UnderReplication(client.metadata_store, client.znodes)
    metadata = _closed(client, sizes)
    before = metadata.last_fragment.ensemble
    racks = dict.fromkeys(before, "/a")

    def candidates(self: EnsembleChoice, registered: list[RegisteredBookie], now_ms: int) -> list[Candidate]:
        return [Candidate(one.bookie_id, racks.get(one.bookie_id, f"/{one.bookie_id}")) for one in registered]

    monkeypatch.setattr(EnsembleChoice, "_candidates", candidates)
    marks.mark(metadata.ledger_id, ())
    done = result_of(client, _rereplicator(client, marks).rereplicate(metadata.ledger_id))
    assert (done.is_whole, done.problem, marks.mark_of(metadata.ledger_id)) == (True, "", None)
    assert_whole(client, metadata.ledger_id, ())
    after = client.ledger_metadata(metadata.ledger_id).last_fragment.ensemble
    assert done.fragments == sum(one != other for one, other in zip(before, after, strict=True)) > 0
    locations = [location_of(racks.get(one, f"/{one}")) for one in after]
    assert spread_of(locations, sizes[1]) > spread_of([location_of("/a")] * sizes[0], sizes[1])
    marks.mark(metadata.ledger_id, ())
    assert result_of(client, _rereplicator(client, marks).rereplicate(metadata.ledger_id)).fragments == 0
    assert client.ledger_metadata(metadata.ledger_id).last_fragment.ensemble == after
