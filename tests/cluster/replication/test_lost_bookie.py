"""A bookie of four dies for good, once for all tests here: ledgers of each kind named it. Ref: protocol rules 53 to 56."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import LedgerClosedError, LedgerFencedError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication import worker as replication_worker
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads, result_of
from tests.cluster.metadata.test_zookeeper import expire
from tests.cluster.replication.test_rereplicator import HASTY, assert_leaves, assert_whole
from tests.cluster.replication.test_worker import SLOW, eventually, lost_for_good, worker

SMALL, LARGE = 10, 1_000_000
"""Payloads: a copy of five large ones takes several batches."""

TEN = [b"%d" % one for one in range(10)]


@dataclass
class Lost:
    """The bookie, and ledgers that name it, each for one test."""

    bookie: LocalBookie
    owner: BookKeeper
    """Whose writers live on."""

    closed: dict[tuple[tuple[int, int, int], int], LedgerMetadata] = field(default_factory=dict)
    """By their sizes and entries, with a password."""

    named: dict[int, list[int]] = field(default_factory=dict)
    """Closed ledgers of five entries on two bookies each, by the payloads' sizes."""

    writers: list[WriteHandle] = field(default_factory=list)
    """Each has added ten entries, and is confirmed by two bookies."""

    idle: list[WriteHandle] = field(default_factory=list)
    """The same, confirmed by all three."""

    abandoned: int = -1
    """An open ledger whose writer's process is gone."""

    @property
    def bookie_id(self) -> str:
        return self.bookie.bookie_id

    def take(self, count: int, size: int = SMALL) -> list[int]:
        return [self.named[size].pop() for _ in range(count)]


def _naming(bookie_id: str, create: Callable[[], WriteHandle]) -> WriteHandle:
    """A new ledger whose ensemble has the bookie."""
    while bookie_id not in (writer := create()).metadata.last_fragment.ensemble:
        writer.close()
    return writer


def _named(client: BookKeeper, bookie_id: str, size: int) -> int:
    with _naming(bookie_id, lambda: client.create_ledger(3, 2, 2)) as writer:
        writer.append_batch([b"%d" % one * size for one in range(5)])
    return writer.ledger_id


def _closed(client: BookKeeper, bookie_id: str, sizes: tuple[int, int, int], entries: int) -> LedgerMetadata:
    with _naming(bookie_id, lambda: client.create_ledger(*sizes, password=b"secret")) as writer:
        if entries:
            writer.append_batch([b"%d" % one for one in range(entries)])
    return client.ledger_metadata(writer.ledger_id)


def _written(client: BookKeeper, bookie_id: str, ack_quorum: int) -> WriteHandle:
    writer = _naming(bookie_id, lambda: client.create_ledger(3, 3, ack_quorum))
    writer.append_batch(TEN)
    return writer


def _before(cluster: LocalCluster, owner: BookKeeper) -> Lost:
    lost = Lost(cluster.bookies[1], owner)
    for sizes in ((3, 3, 2), (3, 2, 2), (1, 1, 1)):
        for entries in (0, 20, 21):
            lost.closed[sizes, entries] = _closed(owner, lost.bookie_id, sizes, entries)
    for size, count in ((SMALL, 45), (20_000, 6), (LARGE, 3)):
        lost.named[size] = [_named(owner, lost.bookie_id, size) for _ in range(count)]
    lost.writers = [_written(owner, lost.bookie_id, 2) for _ in range(2)]
    lost.idle = [_written(owner, lost.bookie_id, 3)]
    with BookKeeper(cluster.metadata_uri, BRISK) as dying:
        lost.abandoned = _written(dying, lost.bookie_id, 3).ledger_id
    return lost


@pytest.fixture(scope="module")
def lost(wide_cluster: LocalCluster) -> Iterator[Lost]:
    with ExitStack() as undo:
        owner = undo.enter_context(BookKeeper(wide_cluster.metadata_uri, BRISK))
        made = _before(wide_cluster, owner)
        undo.enter_context(lost_for_good(owner, made.bookie))
        yield made


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def marks(client: BookKeeper) -> UnderReplication:
    return UnderReplication(client.metadata_store, client.znodes)


@pytest.fixture
def rereplicator(client: BookKeeper) -> Rereplicator:
    return Rereplicator(client.context, HASTY)


# --- one call


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("entries", [0, 20])
def test_after_a_bookie_died_every_fragment_is_back_on_a_whole_write_quorum(
    client: BookKeeper, rereplicator: Rereplicator, lost: Lost, sizes: tuple[int, int, int], entries: int
) -> None:
    """Situation 76; protocol rule 54 where there are no entries."""
    assert_leaves(client, rereplicator, lost.closed[sizes, entries], lost.bookie_id, entries)


def test_what_only_the_lost_bookie_had_is_said_and_nothing_else_changes(
    client: BookKeeper, rereplicator: Rereplicator, lost: Lost
) -> None:
    metadata = lost.closed[(1, 1, 1), 20]
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, {lost.bookie_id}))
    assert not done.is_whole
    assert f"ledger {metadata.ledger_id}" in done.problem
    assert client.ledger_metadata(metadata.ledger_id) == metadata


def _spare(cluster: LocalCluster, metadata: LedgerMetadata) -> str:
    return next(one.bookie_id for one in cluster.bookies if one.bookie_id not in metadata.last_fragment.ensemble)


def test_with_too_few_bookies_the_problem_has_the_numbers(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator, lost: Lost
) -> None:
    """The only other one leaves as well."""
    metadata = lost.closed[(3, 3, 2), 21]
    leaving = {lost.bookie_id, _spare(wide_cluster, metadata)}
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id, leaving))
    assert not done.is_whole
    assert "needs 1 bookies and 0 can be used" in done.problem


def test_a_writer_that_lives_replaces_the_bookie_itself_and_is_not_fenced(
    client: BookKeeper, rereplicator: Rereplicator, lost: Lost
) -> None:
    """Only what has an end is copied, and the rest once it has one. Protocol rule 53; situation 6."""
    writer = lost.writers.pop()
    before = writer.metadata.last_fragment
    writer.append(b"10")
    fence = Fragment(before.first_entry_id + 5, before.ensemble)
    done = result_of(client, rereplicator.rereplicate(writer.ledger_id, {lost.bookie_id}, fence=fence))
    while not done.is_whole:  # the writer, or bookies, have not heard of it yet
        assert done.open_fragment is not None
        done = result_of(client, rereplicator.rereplicate(writer.ledger_id, {lost.bookie_id}))
    writer.append(b"11")
    writer.close()
    assert_whole(client, writer.ledger_id, {lost.bookie_id})
    with client.open_ledger(writer.ledger_id) as reader:
        assert payloads(reader) == [b"%d" % one for one in range(12)]


def test_an_open_ledger_whose_writer_does_nothing_is_fenced_after_its_grace(
    client: BookKeeper, rereplicator: Rereplicator, lost: Lost
) -> None:
    """Protocol rule 53; situation 40: re-replicate, then fence, then re-replicate the rest."""
    writer = lost.idle.pop()  # with an ack quorum of two it may still wait for the third bookie, and replaces it
    assert rereplicator.rereplicate_many([writer.ledger_id], {lost.bookie_id}) == []
    assert client.ledger_metadata(writer.ledger_id).state is LedgerState.CLOSED
    assert_whole(client, writer.ledger_id, {lost.bookie_id})
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        writer.append(b"late")
    with client.open_ledger(writer.ledger_id) as reader:
        assert payloads(reader) == TEN


def test_many_ledgers_are_copied_at_once_from_several_threads(
    client: BookKeeper, rereplicator: Rereplicator, lost: Lost
) -> None:
    named = lost.take(15)
    heard: list[RereplicatedLedger] = []
    left: list[RereplicatedLedger] = []

    def copy(some: list[int]) -> None:
        left.extend(rereplicator.rereplicate_many(some, {lost.bookie_id}, heard.append))

    threads = [threading.Thread(target=copy, args=(half,)) for half in (named[::2], named[1::2])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [one.problem for one in left] == []
    assert sorted(one.ledger_id for one in heard) == sorted(named)
    for ledger_id in named:
        assert_whole(client, ledger_id, {lost.bookie_id})


def test_a_bookie_without_its_entries_gets_them_back_where_there_is_no_other(
    wide_cluster: LocalCluster, client: BookKeeper, rereplicator: Rereplicator, marks: UnderReplication, lost: Lost
) -> None:
    """Situation 81. The spare takes the place of the one that has the entries, in the metadata alone."""
    metadata = lost.closed[(3, 2, 2), 21]
    spare, path = _spare(wide_cluster, metadata), client.znodes.ledger(metadata.ledger_id)
    ensemble = tuple(spare if one == lost.bookie_id else one for one in metadata.last_fragment.ensemble)
    emptied = replace(metadata, fragments=(Fragment(0, ensemble),))
    client.metadata_store.set(path, emptied.encode(), client.metadata_store.get(path).version)
    marks.mark(metadata.ledger_id, [spare])
    done = result_of(client, rereplicator.rereplicate(metadata.ledger_id))
    assert done.is_whole
    assert client.ledger_metadata(metadata.ledger_id) == emptied
    assert done.entries == 14  # of 21, on two of three bookies each
    assert_whole(client, metadata.ledger_id, ())


# --- workers


def test_all_marked_ledgers_are_made_whole_and_their_marks_go(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication, lost: Lost
) -> None:
    """By two workers at once; those marked before they started, and those that come. Situation 76."""
    named = lost.take(20)
    marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in named[:10]})
    with worker(wide_cluster) as (one, _), worker(wide_cluster) as (other, _):
        eventually(lambda: marks.count() == 0)
        marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in named[10:]})
        eventually(lambda: marks.count() == 0)
        eventually(lambda: one.made_whole + other.made_whole >= 20)
        for ledger_id in named:
            assert_whole(client, ledger_id, {lost.bookie_id})
    assert marks.locks() == {}


def test_readers_and_a_writer_go_on_meanwhile(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication, lost: Lost
) -> None:
    named = lost.take(5)
    ended = threading.Event()
    seen: list[bytes] = []

    def read_on() -> None:
        while not ended.is_set():
            for ledger_id in named:
                with client.open_ledger(ledger_id) as reader:
                    seen.extend(payloads(reader))

    reading = threading.Thread(target=read_on)
    reading.start()
    writer, count = lost.writers.pop(), len(TEN)
    with writer, worker(wide_cluster):
        marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in [*named, writer.ledger_id]})
        while marks.count() or count < 30:
            assert writer.append(b"%d" % count) == count
            count += 1
    ended.set()
    reading.join(DEADLINE_S)
    assert set(seen) == {b"%d" % one * SMALL for one in range(5)}
    with client.open_ledger(writer.ledger_id) as reader:
        assert payloads(reader) == [b"%d" % one for one in range(count)]


def test_an_open_ledger_of_a_dead_writer_is_fenced_closed_and_copied(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication, lost: Lost
) -> None:
    """Protocol rule 53."""
    with worker(wide_cluster):
        marks.mark(lost.abandoned, [lost.bookie_id])
        eventually(lambda: marks.count() == 0)
    assert client.ledger_metadata(lost.abandoned).state is LedgerState.CLOSED
    assert_whole(client, lost.abandoned, {lost.bookie_id})


def test_nothing_is_begun_while_autorecovery_is_disabled_and_what_is_under_way_stops_at_once(
    wide_cluster: LocalCluster, marks: UnderReplication, lost: Lost
) -> None:
    named = lost.take(3, LARGE)
    with worker(wide_cluster, SLOW) as (made, _):
        marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in named})
        eventually(lambda: len(marks.locks()) == 3)
        marks.disable()
        try:
            eventually(lambda: marks.locks() == {})
            assert (made.made_whole, marks.count()) == (0, 3)
        finally:
            marks.enable()
        eventually(lambda: len(marks.locks()) == 3)
    assert marks.locks() == {}
    assert marks.count() == 3
    with worker(wide_cluster):
        eventually(lambda: marks.count() == 0)


def test_a_worker_whose_session_expires_harms_nothing_and_goes_on_with_a_new_one(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication, lost: Lost
) -> None:
    """Situation 83: its locks are gone, others may work on the same ledgers, and it finishes what is left."""
    named = lost.take(6, 20_000)
    slow = AutoRecoveryConfig(replicate_bytes_per_s=400_000, retry_s=0.2)
    with worker(wide_cluster, slow) as (made, store):
        marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in named})
        eventually(lambda: bool(marks.locks()))
        expire(store)
        with worker(wide_cluster):
            eventually(lambda: marks.count() == 0)
        for ledger_id in named:
            assert_whole(client, ledger_id, {lost.bookie_id})
        [more] = lost.take(1)
        marks.mark(more, [lost.bookie_id])
        eventually(lambda: marks.count() == 0)
        eventually(lambda: len(made._under_way) == 0)


def test_a_ledger_that_takes_long_keeps_no_others_waiting(
    wide_cluster: LocalCluster, marks: UnderReplication, lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not those that are marked, or are to be tried again, meanwhile."""
    [long, short] = lost.take(2)
    marked, begun = Rereplicator.rereplicate, threading.Event()

    async def slowly(self: Rereplicator, ledger_id: int, *, fence: Fragment | None = None) -> RereplicatedLedger | None:
        if ledger_id == long:
            begun.set()
            await asyncio.Event().wait()
        return await marked(self, ledger_id, fence=fence)

    monkeypatch.setattr(Rereplicator, "rereplicate", slowly)
    monkeypatch.setattr(UnderReplication, "locked_ids", lambda _: set())  # a lock that is taken right behind the look at locks
    with worker(wide_cluster) as (made, _):
        marks.mark(long, [lost.bookie_id])
        assert begun.wait(DEADLINE_S)
        assert marks.try_lock(short, "somebody else")
        marks.mark(short, [lost.bookie_id])
        eventually(lambda: len(made._retries) == 1)
        marks.unlock(short)
        eventually(lambda: [one.ledger_id for one in marks.marks()] == [long])
        eventually(lambda: len(made._under_way) == 1)
    marks.remove(next(marks.marks()))


def test_ledgers_that_wait_keep_no_others_from_being_found(
    wide_cluster: LocalCluster, marks: UnderReplication, lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more are marked than are taken up at a time."""
    monkeypatch.setattr(replication_worker, "TAKEN_AT_ONCE", 1)
    monkeypatch.setattr(UnderReplication, "locked_ids", lambda _: set())  # a lock that is taken right behind the look at locks
    [first, second] = lost.take(2)
    assert marks.try_lock(first, "somebody else")
    patient = AutoRecoveryConfig(retry_s=2 * DEADLINE_S, parallel_ledgers=1)
    with worker(wide_cluster, patient):
        marks.mark_many({ledger_id: [lost.bookie_id] for ledger_id in (first, second)})
        eventually(lambda: [one.ledger_id for one in marks.marks()] == [first])
    marks.unlock(first)
    marks.remove(next(marks.marks()))
