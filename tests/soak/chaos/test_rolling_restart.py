"""Every bookie is restarted, one after the other, under load; with AutoRecovery at work, and with it disabled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor_znodes import is_requested, request_audit
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.soak.chaos.steady_load import SteadyLoad, is_unreadable
from tests.unit.datasource.batches import wait_until

BOOKIES = 4
"""One more than a ledger needs."""

GRACE_S = 60.0
"""A restart takes seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=BOOKIES, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=2.0)) as cluster:
        cluster.start_autorecovery(AutoRecoveryConfig(lost_bookie_grace_s=GRACE_S, audit_interval_s=1.0))
        yield cluster


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "disabled"])
def test_a_rolling_restart_reaches_no_writer_and_no_reader_and_soon_no_copy_is_missing(
    cluster: LocalCluster, is_enabled: bool
) -> None:
    """Situations 1, 37, 51 and 79: each bookie comes back within the grace period, and gets there what writers left out."""
    with BookKeeper(cluster.metadata_uri) as client:
        marks = UnderReplication(client.metadata_store, client.znodes)
        if not is_enabled:
            marks.disable()
        with SteadyLoad(cluster.metadata_uri) as load:
            load.await_progress()
            for bookie in cluster.bookies:
                bookie.stop()
                load.await_progress(appends=20, reads=10)
                bookie.start()
                load.await_progress(appends=20, reads=10)
        assert load.noted.errors == []
        last = dict(load.noted.confirmed)
        marks.enable()
        wait_until(lambda: marks.count() == 0, within_s=60.0)
        request_audit(client.metadata_store, client.znodes, reads_replicas=True)
        wait_until(lambda: not is_requested(client.metadata_store, client.znodes), within_s=60.0)
        assert marks.count() == 0
        assert [problem for one in last if (problem := is_unreadable(client, one, last[one]))] == []
