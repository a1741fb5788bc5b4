"""The AutoRecovery process as a whole, on a real cluster: situations 76, 78, 81 and 82."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalBookie, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor_znodes import candidates
from bk_spark.replication.ledger_audit import AllChecked, LedgerAudit
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.client.cluster_of_znodes import eventually
from tests.cluster.live_ledgers import BRISK, payloads, result_of

QUICK = AutoRecoveryConfig(lost_bookie_grace_s=0.5, session_timeout_s=1.0, retry_s=0.5)
PAYLOADS = [b"entry %d: " % number + b"-" * 200 for number in range(40)]


@pytest.fixture(scope="module")
def spacious() -> Iterator[LocalCluster]:
    """Four bookies, so that one can be replaced in an ensemble of three."""
    with LocalCluster(bookies=4, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=2.0)) as cluster:
        yield cluster


@pytest.fixture
def client(spacious: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(spacious.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def marks(client: BookKeeper) -> UnderReplication:
    return UnderReplication(client.metadata_store, client.znodes)


def written(client: BookKeeper) -> int:
    """A closed ledger of which every bookie has everything: all three had to ack."""
    with client.create_ledger(3, 3, 3) as writer:
        writer.append_batch(PAYLOADS)
    return writer.ledger_id


def of_slot(spacious: LocalCluster, client: BookKeeper, ledger_id: int, slot: int) -> LocalBookie:
    ensemble = client.ledger_metadata(ledger_id).last_fragment.ensemble
    return next(bookie for bookie in spacious.bookies if bookie.bookie_id == ensemble[slot])


def flip_payloads(bookie: LocalBookie, numbers: list[int]) -> None:
    """Change a byte of these entries in the entry logs of a bookie that stands still."""
    flipped = 0
    for path in sorted((bookie.data_dir / "entry_log").iterdir()):
        content = bytearray(path.read_bytes())
        for number in numbers:
            at = content.find(PAYLOADS[number])
            while at >= 0:
                content[at + 100] ^= 1
                flipped += 1
                at = content.find(PAYLOADS[number], at + 1)
        path.write_bytes(content)
    assert flipped


@pytest.mark.timeout(120)
def test_flipped_bytes_in_an_entry_log_are_found_marked_and_replaced(
    spacious: LocalCluster, client: BookKeeper, marks: UnderReplication
) -> None:
    """Situation 81, and 82 for what is left of the entries meanwhile."""
    check = LedgerCheck(client.context, AutoRecoveryConfig())
    ledger_id = written(client)
    rotten = of_slot(spacious, client, ledger_id, 2)
    rotten.stop()
    flip_payloads(rotten, [7, 8])
    rotten.start()
    totals = AllChecked()
    audit = LedgerAudit(client.context, marks)
    assert client.context.submit(audit.check_all(check, frozenset, totals)).result()
    [(lacking, damaged)] = totals.lacking.items()
    assert lacking == rotten.bookie_id
    assert damaged >= 2  # all of a damaged batch; the bookie repairs it as soon as somebody has read it
    assert [(mark.ledger_id, mark.missing) for mark in marks.marks()] == [(ledger_id, (rotten.bookie_id,))]
    recovery = spacious.start_autorecovery(QUICK)
    eventually(lambda: marks.count() == 0, 60.0)
    assert result_of(client, check.check(ledger_id)).lacking == {}
    recovery.stop()


@pytest.mark.timeout(120)
def test_after_the_store_was_away_and_the_session_lost_it_stands_again_and_makes_lost_copies_again(
    spacious: LocalCluster, client: BookKeeper, marks: UnderReplication
) -> None:
    """Situations 76 and 78."""
    ledger_id = written(client)
    recovery = spacious.start_autorecovery(QUICK)
    spacious.zookeeper.stop()
    spacious.zookeeper.start()
    recovery.suspend()
    eventually(lambda: candidates(client.metadata_store, client.znodes) == [])
    recovery.resume()
    eventually(lambda: candidates(client.metadata_store, client.znodes) == [recovery.name])
    lost = of_slot(spacious, client, ledger_id, 0)
    lost.kill()
    eventually(lambda: lost.bookie_id not in client.ledger_metadata(ledger_id).bookies, 60.0)
    eventually(lambda: (marks.count(), marks.locks()) == (0, {}))
    assert payloads(client.open_ledger(ledger_id)) == PAYLOADS
    recovery.stop()
    assert candidates(client.metadata_store, client.znodes) == []


@pytest.mark.parametrize("name", ["lost_bookie_grace_s", "parallel_ledgers", "http_port", "ledger_check_bytes_per_s"])
@pytest.mark.parametrize("value", [-1, True, "5", float("nan"), 1 << 50])
def test_settings_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        AutoRecoveryConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("retry_s", 0), ("parallel_ledgers", 1.5), ("http_port", 70_000)])
def test_settings_of_the_wrong_kind_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        AutoRecoveryConfig(**{name: value})  # type: ignore[arg-type]
