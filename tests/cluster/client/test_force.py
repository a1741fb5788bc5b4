"""Deferred sync and force, over real bookies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, LedgerClosedError, NotForcedError
from bk_spark.local.cluster import LocalCluster
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, bookies_of, eventually_last_add_confirmed, killed, payloads, suspended


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    """A force is a sync on each bookie, which a busy disk may keep for seconds."""
    with BookKeeper(wide_cluster.metadata_uri, replace(BRISK, add_timeout_s=5.0)) as client:
        yield client


def test_with_deferred_sync_only_a_force_confirms_for_readers(client: BookKeeper) -> None:
    """Ref: protocol rule 30."""
    with client.create_ledger(deferred_sync=True) as writer:
        assert writer.append_batch([b"a", b"b"]) == (0, 1)
        assert writer.append(b"c") == 2
        assert (writer.last_add_confirmed, writer.length, writer.last_add_pushed) == (-1, 0, 2)
        reader = client.open_ledger(writer.ledger_id, recover=False)
        assert reader.read_last_add_confirmed() == -1
        assert writer.force() == 2
        assert (writer.last_add_confirmed, writer.length) == (2, 3)
        eventually_last_add_confirmed(reader, 2)
        assert payloads(reader) == [b"a", b"b", b"c"]
        assert writer.force() == 2
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"a", b"b", b"c"]


def test_a_ledger_that_was_never_forced_is_closed_without_any_entry(client: BookKeeper) -> None:
    """Ref: protocol rule 30."""
    with client.create_ledger(deferred_sync=True) as writer:
        writer.append(b"x")
    metadata = client.ledger_metadata(writer.ledger_id)
    assert (metadata.is_closed, metadata.last_entry_id, metadata.length) == (True, -1, 0)


def test_a_close_after_a_force_ends_the_ledger_at_what_was_forced(client: BookKeeper) -> None:
    with client.create_ledger(deferred_sync=True) as writer:
        writer.append(b"x")
        writer.force()
        writer.append(b"not forced")
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"x"]


def test_a_force_needs_every_bookie_and_the_ensemble_does_not_change(client: BookKeeper, wide_cluster: LocalCluster) -> None:
    """An ack quorum is there, a fourth bookie too. Ref: protocol rule 30."""
    with client.create_ledger(deferred_sync=True) as writer:
        writer.append(b"x")
        assert writer.force() == 0
        victim = bookies_of(wide_cluster, writer.metadata)[0]
        with suspended(victim):
            assert writer.append(b"y") == 1
            with pytest.raises(NotForcedError, match=victim.bookie_id):
                writer.force()
        assert writer.last_add_confirmed == 0
    metadata = client.ledger_metadata(writer.ledger_id)
    assert (metadata.last_entry_id, len(metadata.fragments)) == (0, 1)


def test_a_bookie_that_was_started_again_does_not_count_for_what_it_acked_before(
    client: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """What it had in memory alone is lost, though it answers. Ref: protocol rule 30."""
    with client.create_ledger(deferred_sync=True) as writer:
        writer.append(b"x")
        with killed(bookies_of(wide_cluster, writer.metadata)[1]):
            pass
        with pytest.raises(NotForcedError):
            writer.force()
        assert writer.last_add_confirmed == -1


def test_without_deferred_sync_a_force_waits_for_what_was_appended_before(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        assert writer.force() == -1
        futures = [writer.append_async(b"%d" % i) for i in range(1000)]
        assert writer.force() >= 999
        assert all(future.done() for future in futures)


def test_a_force_does_not_wait_for_entries_beyond_a_gap(client: BookKeeper) -> None:
    with client.create_ledger_adv() as writer:
        writer.append_async(0, b"0")
        waiting = writer.append_async(2, b"2")
        assert writer.force() == 0
        assert not waiting.done()
        writer.append(1, b"1")
        assert waiting.result(DEADLINE_S) == 2


def test_chosen_ids_and_deferred_sync_go_together(client: BookKeeper) -> None:
    with client.create_ledger_adv(deferred_sync=True) as writer:
        later = writer.append_async(1, b"b")
        writer.append(0, b"a")
        assert later.result(DEADLINE_S) == 1
        assert writer.last_add_confirmed == -1
        assert writer.force() == 1
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"a", b"b"]


@pytest.mark.parametrize("deferred_sync", [True, False])
def test_a_force_after_close_fails(client: BookKeeper, deferred_sync: bool) -> None:
    writer = client.create_ledger(deferred_sync=deferred_sync)
    writer.append(b"x")
    writer.close()
    with pytest.raises(LedgerClosedError):
        writer.force()


def test_a_force_in_a_callback_is_refused(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        raised: list[BaseException] = []

        def callback(_: object) -> None:
            try:
                writer.force()
            except ConfigError as error:
                raised.append(error)

        future = writer.append_async(b"x")
        future.add_done_callback(callback)
        writer.append(b"y")
        assert len(raised) == 1
