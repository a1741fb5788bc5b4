"""What may happen between a replicator's steps: cancelled work, writers that live, marks of others. Real bookies and sessions.

Ref: protocol rules 45, 53, 55 and 56; situations 40, 81 and 83.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import MetadataUnavailableError
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.metadata.store import SetValue, StoreChange
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.ledger_rereplication import Leaving, RereplicatedLedger
from bk_spark.replication.lock import TakenLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, bookies_of, killed, payloads, result_of
from tests.cluster.replication.test_rereplicator import assert_whole
from tests.cluster.replication.test_worker import eventually


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def marks(client: BookKeeper) -> UnderReplication:
    return UnderReplication(client.metadata_store, client.znodes)


@pytest.fixture
def rereplicator(client: BookKeeper, marks: UnderReplication) -> Rereplicator:
    return Rereplicator(client.context, AutoRecoveryConfig(open_fragment_grace_s=0.05), marks)


def _marked(client: BookKeeper, rereplicator: Rereplicator, ledger_id: int) -> list[RereplicatedLedger]:
    """As a worker does it: what is open is taken up once more after its grace."""
    tries: list[RereplicatedLedger] = []
    while not tries or (tries[-1].open_fragment is not None and len(tries) < 3):
        fence = tries[-1].open_fragment if tries else None
        done = result_of(client, rereplicator.rereplicate(ledger_id, fence=fence))
        assert done is not None
        tries.append(done)
    return tries


def _closed(client: BookKeeper, size: int = 3) -> LedgerMetadata:
    with client.create_ledger(size, size, 2) as writer:
        writer.append_batch([b"%d" % one for one in range(20)])
    return client.ledger_metadata(writer.ledger_id)


def _name(client: BookKeeper, metadata: LedgerMetadata, fragments: Sequence[Fragment]) -> None:
    path = client.znodes.ledger(metadata.ledger_id)
    changed = replace(metadata, fragments=tuple(fragments))
    client.metadata_store.set(path, changed.encode(), client.metadata_store.get(path).version)


def _writer_behind_a_change(cluster: LocalCluster, client: BookKeeper) -> tuple[WriteHandle, str]:
    """A ledger of 10 + 5 entries in two fragments, and a bookie of the second one that lacks those of the first one."""
    writer = client.create_ledger(3, 3, 2)
    writer.append_batch([b"%d" % one for one in range(10)])
    with killed(bookies_of(cluster, writer.metadata)[0]):
        for one in range(10, 15):
            writer.append(b"%d" % one)
    metadata = client.ledger_metadata(writer.ledger_id)
    second = metadata.last_fragment
    _name(client, metadata, [Fragment(0, second.ensemble), second])
    return writer, second.ensemble[0]


def test_a_writer_is_not_fenced_because_a_registered_bookie_of_its_tail_lacks_older_entries(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication
) -> None:
    """Protocol rule 53: the bookie takes the writer's adds, and nothing is known to be missing of the tail. Situation 81."""
    writer, lacking = _writer_behind_a_change(wide_cluster, client)
    marks.mark(writer.ledger_id, [lacking])
    assert [one.is_whole for one in _marked(client, rereplicator, writer.ledger_id)] == [True]
    assert marks.mark_of(writer.ledger_id) is None
    assert writer.append(b"15") == 15
    writer.close()
    assert_whole(client, writer.ledger_id, ())
    with client.open_ledger(writer.ledger_id) as reader:
        assert payloads(reader) == [b"%d" % one for one in range(16)]


def test_a_mark_stays_while_what_a_registered_bookie_lacks_still_counts_as_open(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication
) -> None:
    """Protocol rule 55: neither copied nor fenced, nor forgotten."""
    writer, lacking = _writer_behind_a_change(wide_cluster, client)
    marks.mark(writer.ledger_id, [lacking])
    metadata = client.ledger_metadata(writer.ledger_id)
    _name(client, metadata, [*metadata.fragments, Fragment(40, metadata.fragments[0].ensemble)])
    [done] = _marked(client, rereplicator, writer.ledger_id)
    assert (done.is_whole, done.open_fragment, done.fragments) == (False, None, 1)
    assert marks.mark_of(writer.ledger_id) is not None
    now = client.ledger_metadata(writer.ledger_id)
    assert not now.is_closed
    _name(client, now, now.fragments[:2])
    assert [one.is_whole for one in _marked(client, rereplicator, writer.ledger_id)] == [True]
    assert marks.mark_of(writer.ledger_id) is None
    writer.close()
    assert_whole(client, writer.ledger_id, ())


def test_a_fragment_that_ended_while_a_registered_bookie_was_asked_is_not_taken_for_the_tail(
    wide_cluster: LocalCluster,
    client: BookKeeper,
    rereplicator: Rereplicator,
    marks: UnderReplication,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bookie lacks entries of it: the mark must not go before these are somewhere."""
    writer = client.create_ledger(3, 3, 2)
    writer.append_batch([b"%d" % one for one in range(10)])
    before = client.ledger_metadata(writer.ledger_id)
    ensemble = before.last_fragment.ensemble
    lacking = next(one.bookie_id for one in wide_cluster.bookies if one.bookie_id not in ensemble)
    first = Fragment(0, (lacking, *ensemble[1:]))
    _name(client, before, [first])
    marks.mark(writer.ledger_id, [lacking])
    missing = rereplicator._missing

    async def after_a_change(ledger_id: int, taken: TakenLedger) -> Leaving:
        _name(client, before, [first, Fragment(10, ensemble)])
        return await missing(ledger_id, taken)

    monkeypatch.setattr(rereplicator, "_missing", after_a_change)
    _marked(client, rereplicator, writer.ledger_id)
    named = client.ledger_metadata(writer.ledger_id).fragments[0].ensemble
    assert lacking not in named or marks.mark_of(writer.ledger_id) is not None
    monkeypatch.undo()
    eventually(lambda: marks.mark_of(writer.ledger_id) is None or _marked(client, rereplicator, writer.ledger_id)[-1].is_whole)
    client.open_ledger(writer.ledger_id).close()
    assert_whole(client, writer.ledger_id, ())


def test_a_lock_that_was_being_taken_when_the_work_was_cut_off_is_given_back(
    client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Situation 83: the process and its session live on, after AutoRecovery was disabled for a while."""
    metadata = _closed(client)
    entered, go_on, take = threading.Event(), threading.Event(), rereplicator._lock.take

    def slowly(ledger_id: int) -> object:
        entered.set()
        assert go_on.wait(DEADLINE_S)
        return take(ledger_id)

    monkeypatch.setattr(rereplicator._lock, "take", slowly)
    leaving = {metadata.last_fragment.ensemble[0]}
    work = client.context.submit(rereplicator.rereplicate(metadata.ledger_id, leaving))
    assert entered.wait(DEADLINE_S)
    work.cancel()
    go_on.set()
    monkeypatch.undo()
    eventually(lambda: result_of(client, rereplicator.rereplicate(metadata.ledger_id, leaving)).is_whole)
    assert marks.locks() == {}


@pytest.mark.parametrize("lost_call", ["create", "delete"])
def test_a_lock_that_an_unanswered_call_left_does_not_count_as_somebody_elses(
    client: BookKeeper,
    rereplicator: Rereplicator,
    marks: UnderReplication,
    monkeypatch: pytest.MonkeyPatch,
    lost_call: str,
) -> None:
    """Workers begin no ledger that others have locked. Nobody but this process can take what it left locked."""
    metadata, store = _closed(client), client.metadata_store
    call = getattr(store, lost_call)

    def unanswered(path: str, *args: object, **options: object) -> None:
        if path != client.znodes.under_replicated_lock(metadata.ledger_id):
            call(path, *args, **options)
            return
        if lost_call == "create":
            call(path, *args, **options)
        raise MetadataUnavailableError(store.uri, "no answer")

    monkeypatch.setattr(store, lost_call, unanswered)
    result_of(client, rereplicator.rereplicate(metadata.ledger_id))
    monkeypatch.undo()
    assert marks.locked_ids() == {metadata.ledger_id}
    assert Rereplicator(client.context, AutoRecoveryConfig()).locked_by_others() == {metadata.ledger_id}
    assert rereplicator.locked_by_others() == set()
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id)).is_whole
    assert marks.locked_ids() == set()


def test_a_change_that_was_under_way_when_the_work_was_cut_off_does_not_come_after_the_lock_is_given_back(
    client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 45: whoever takes the lock next may drop copies that no metadata names, and these would be named then."""
    metadata = _closed(client)
    leaving = {metadata.last_fragment.ensemble[0]}
    entered, go_on, arrived = threading.Event(), threading.Event(), threading.Event()
    transaction = client.metadata_store.transaction

    def slowly(changes: Sequence[StoreChange]) -> None:
        if not any(isinstance(one, SetValue) for one in changes):
            transaction(changes)
            return
        entered.set()
        assert go_on.wait(DEADLINE_S)
        try:
            transaction(changes)
        finally:
            arrived.set()

    monkeypatch.setattr(client.metadata_store, "transaction", slowly)
    work = client.context.submit(rereplicator.rereplicate(metadata.ledger_id, leaving))
    assert entered.wait(DEADLINE_S)
    work.cancel()
    eventually(lambda: marks.locks() == {})
    go_on.set()
    assert arrived.wait(DEADLINE_S)
    monkeypatch.undo()
    assert client.ledger_metadata(metadata.ledger_id) == metadata
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, leaving)).is_whole


def test_a_mark_that_names_no_other_bookie_goes_with_the_copying_and_any_other_stays(
    client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 56, for a decommission and a Spark job, which are told whom to replace and not what is marked."""
    metadata = _closed(client, 2)
    leaving, other = metadata.last_fragment.ensemble
    marks.mark(metadata.ledger_id, [leaving, other])
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving})).is_whole
    assert marks.mark_of(metadata.ledger_id) is not None
    finish = rereplicator._lock.finish
    monkeypatch.setattr(rereplicator._lock, "finish", lambda taken: marks.mark(metadata.ledger_id, [other]) or finish(taken))
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving, other})).is_whole
    assert marks.mark_of(metadata.ledger_id) is not None
    monkeypatch.undo()
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving, other})).is_whole
    assert marks.mark_of(metadata.ledger_id) is None
