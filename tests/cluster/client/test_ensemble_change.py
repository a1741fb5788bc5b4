"""Writers over real bookies that die, stand still and come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.live_ledgers import (
    BRISK,
    DEADLINE_S,
    bookies_of,
    eventually_last_add_confirmed,
    killed,
    payloads,
    result_of,
    suspended,
)


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as client:
        yield client


def test_writers_wait_for_bookies_that_are_all_slow_instead_of_failing(client: BookKeeper, wide_cluster: LocalCluster) -> None:
    """Protocol rule 68: all bookies stand still for longer than the add timeout, as under overload."""
    writers = [client.create_ledger() for _ in range(20)]
    futures: list[Future[int]] = []
    with suspended(*wide_cluster.bookies):
        for _ in range(5):
            futures += [writer.append_async(b"x") for writer in writers]
        assert wait(futures, 2 * BRISK.add_timeout_s).done == set()
    assert [future.result(DEADLINE_S) for future in futures] == [entry_id for entry_id in range(5) for _ in writers]
    for writer in writers:
        writer.close()


def test_a_bookie_that_dies_between_adds_is_replaced_and_a_reader_goes_on_and_finds_all(
    client: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """The ensemble that the reader knew is gone but for two bookies; it has the newest metadata then. Ref: situations 1, 51."""
    with client.create_ledger() as writer:
        expected = [b"before %d" % i for i in range(10)]
        assert [writer.append(payload) for payload in expected] == list(range(10))
        reader = client.open_ledger(writer.ledger_id, recover=False)
        known = reader.metadata
        victim = bookies_of(wide_cluster, known)[0]
        with killed(victim):
            while len(writer.metadata.fragments) == 1:
                expected.append(b"after %d" % len(expected))
                assert writer.append(expected[-1]) == len(expected) - 1
            assert writer.append(b"last") == len(expected)
            expected.append(b"last")
            eventually_last_add_confirmed(reader, len(expected) - 1)
            assert payloads(reader) == expected
            assert reader.read_last_add_confirmed() == len(expected) - 1
            assert reader.metadata == writer.metadata != known
            writer.close()
            metadata = client.ledger_metadata(writer.ledger_id)
            assert metadata == writer.metadata
            assert metadata.last_fragment.first_entry_id >= 10
            assert victim.bookie_id not in metadata.last_fragment.ensemble
            assert payloads(client.open_ledger(writer.ledger_id)) == expected
    assert payloads(client.open_ledger(writer.ledger_id)) == expected


def test_adds_outstanding_when_a_bookie_dies_go_to_its_replacement_in_order(
    client: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """No gap, no duplicate; and the replacement, asked alone, holds all that its fragment says. Ref: situation 2."""
    confirmed: list[int] = []
    with client.create_ledger(ack_quorum=3) as writer:
        writer.append(b"first")
        victim = bookies_of(wide_cluster, writer.metadata)[1]
        victim.suspend()
        futures = [writer.append_async(b"%d" % i) for i in range(1, 500)]
        for future in futures:
            future.add_done_callback(lambda done: confirmed.append(done.result()))
        with killed(victim):
            assert [future.result(DEADLINE_S) for future in futures] == list(range(1, 500))
            assert confirmed == list(range(1, 500))
            writer.close()
            metadata = client.ledger_metadata(writer.ledger_id)
            assert victim.bookie_id not in metadata.last_fragment.ensemble
            others = [
                bookie for bookie in bookies_of(wide_cluster, metadata) if bookie.bookie_id in metadata.fragments[0].ensemble
            ]
            with suspended(*others[:2]):
                ids = range(metadata.last_fragment.first_entry_id, 500)
                reader = client.open_ledger(writer.ledger_id)
                assert payloads(reader, ids[0], ids[-1]) == [b"%d" % i for i in ids]


def test_a_suspended_bookie_stops_no_writer_whose_window_is_smaller_than_what_it_writes(
    client: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """Memory stays bounded: the window holds what the silent bookie owes, until it is replaced. Ref: situation 20."""
    with client.create_ledger() as writer:
        writer.append(b"before")
        victim = bookies_of(wide_cluster, writer.metadata)[2]
        most = 0
        with suspended(victim):
            futures: list[Future[tuple[int, int]]] = []
            for _ in range(10):
                futures.append(writer.append_batch_async([b"x" * 1_000_000] * 4))
                most = max(most, writer._queue._held_bytes)
            assert futures[-1].result(DEADLINE_S) == (37, 40)
            writer.close()
            assert most <= client.config.add_window_bytes
            assert len(payloads(client.open_ledger(writer.ledger_id))) == 41


def test_a_reader_of_a_closed_ledger_goes_on_when_every_bookie_of_it_was_replaced(wide_cluster: LocalCluster) -> None:
    """Decommissioned while the reader is in the middle, and gone for good. Protocol rule 57; situation 51."""
    config = dataclasses.replace(BRISK, read_batch_bytes=1 << 20, read_ahead_requests=1)
    with BookKeeper(wide_cluster.metadata_uri, config) as client, BookKeeper(wide_cluster.metadata_uri, BRISK) as operator:
        with client.create_ledger(2, 2, 2) as writer:
            for i in range(100):
                writer.append(b"%d" % i * 100_000)
        reader = client.open_ledger(writer.ledger_id)
        batches = reader.read(0, 99)
        seen = next(batches).num_rows
        old = bookies_of(wide_cluster, writer.metadata)
        leaving = {bookie.bookie_id for bookie in old}
        rereplicator = Rereplicator(operator.context, AutoRecoveryConfig())
        assert result_of(operator, rereplicator.rereplicate(writer.ledger_id, leaving)).is_whole
        now = client.ledger_metadata(writer.ledger_id)
        assert leaving.isdisjoint(now.last_fragment.ensemble)
        with killed(*old):
            assert 0 < seen < 50
            assert seen + sum(batch.num_rows for batch in batches) == 100
            assert reader.metadata == now
            assert payloads(reader, 98, 99) == [b"98" * 100_000, b"99" * 100_000]
