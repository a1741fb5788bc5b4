"""The check of ledgers against real bookie processes: situation 82, protocol rule 55. Damage: test_autorecovery_process.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver import connections, runner
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import NoSuchLedgerError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.client.cluster_of_znodes import eventually
from tests.cluster.live_ledgers import BRISK, killed, result_of, suspended

PAYLOADS = [b"entry %d: " % number + b"-" * 200 for number in range(50)]
ENTRIES = len(PAYLOADS)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def check(client: BookKeeper) -> LedgerCheck:
    return LedgerCheck(client.context, AutoRecoveryConfig())


def test_what_is_confirmed_reaches_all_of_its_write_quorum_although_ledger_and_client_are_closed_at_once(
    cluster: LocalCluster, client: BookKeeper, check: LedgerCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close waits for the ack quorum alone, and a fresh client is still connecting to the third bookie."""
    monkeypatch.setattr(runner, "CLOSE_GRACE_S", 30.0)
    monkeypatch.setattr(connections, "CLOSE_GRACE_S", 30.0)
    with (
        BookKeeper(cluster.metadata_uri, BRISK) as fresh,
        suspended(cluster.bookies[2]),
        fresh.create_ledger(3, 3, 2) as writer,
    ):
        for payload in PAYLOADS[:5]:
            writer.append(payload)
    assert result_of(client, check.check(writer.ledger_id)).lacking == {}


def written(client: BookKeeper, check: LedgerCheck) -> int:
    """A closed ledger of which every bookie has everything: a close waits for the ack quorum alone."""
    writer = client.create_ledger(3, 3, 3)
    writer.append_batch(PAYLOADS)
    writer.close()
    assert result_of(client, check.check(writer.ledger_id)).lacking == {}
    return writer.ledger_id


def of_slot(cluster: LocalCluster, client: BookKeeper, ledger_id: int, slot: int) -> LocalBookie:
    ensemble = client.ledger_metadata(ledger_id).last_fragment.ensemble
    return next(bookie for bookie in cluster.bookies if bookie.bookie_id == ensemble[slot])


def test_every_entry_of_a_closed_ledger_is_read_from_every_bookie_of_its_ensemble(
    client: BookKeeper, check: LedgerCheck
) -> None:
    report = result_of(client, check.check(written(client, check)))
    assert (report.entries, report.lacking, report.unknown) == (3 * ENTRIES, {}, {})
    assert report.nbytes > 3 * sum(map(len, PAYLOADS))
    assert (report.without_replica, report.below_ack_quorum, report.below_write_quorum) == (0, 0, 0)


def test_an_empty_ledger_and_one_that_is_gone(client: BookKeeper, check: LedgerCheck) -> None:
    with client.create_ledger(3, 3, 2) as writer:
        ledger_id = writer.ledger_id
    assert result_of(client, check.check(ledger_id)).entries == 0
    client.delete_ledger(ledger_id)
    with pytest.raises(NoSuchLedgerError):
        result_of(client, check.check(ledger_id))


def test_a_bookie_that_is_down_or_stands_still_is_unknown_unless_it_is_known_to_be_lost(
    cluster: LocalCluster, client: BookKeeper, check: LedgerCheck
) -> None:
    ledger_id = written(client, check)
    silent = of_slot(cluster, client, ledger_id, 1)
    with suspended(silent):
        report = result_of(client, check.check(ledger_id))
        assert (report.lacking, list(report.unknown)) == ({}, [silent.bookie_id])
        assert report.below_write_quorum == 0
        report = result_of(client, check.check(ledger_id, lost=frozenset({silent.bookie_id})))
        assert (report.lacking, report.unknown) == ({silent.bookie_id: ENTRIES}, {})
        assert report.below_ack_quorum == ENTRIES  # the ledger's is 3


def test_of_an_open_ledger_only_fragments_that_have_an_end_are_checked(
    cluster: LocalCluster, client: BookKeeper, check: LedgerCheck
) -> None:
    """Protocol rule 55: what is not known to be confirmed may still be on its way."""
    writer: WriteHandle = client.create_ledger(2, 2, 2)
    writer.append_batch(PAYLOADS)
    assert result_of(client, check.check(writer.ledger_id)).entries == 0
    gone = of_slot(cluster, client, writer.ledger_id, 0)
    with killed(gone):
        writer.append_batch(PAYLOADS)
        eventually(lambda: len(client.ledger_metadata(writer.ledger_id).fragments) == 2)
    assert client.ledger_metadata(writer.ledger_id).last_fragment.first_entry_id == ENTRIES
    report = result_of(client, check.check(writer.ledger_id))
    assert (report.entries, report.lacking) == (2 * ENTRIES, {})
    writer.close()
