"""Copies to a real bookie that has no journal, and that is killed and started again before the metadata names it.

Ref: protocol rule 61.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import MIB, BookieConfig
from bk_spark.entries.rate import ByteRate
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.wire.messages import Status, Verdict
from tests.cluster.bookie.raw_bookie import DEADLINE_S, read
from tests.cluster.live_ledgers import BRISK, payloads

ENTRIES, ENTRY_BYTES = 1_100, 2_000


class OneBatch(ByteRate):
    """Lets one batch through, and the others once it is opened."""

    def __init__(self) -> None:
        super().__init__(AutoRecoveryConfig().replicate_bytes_per_s)
        self.is_open = False
        self._taken, self._seen_ms = 0, 0

    def due_ms(self, now_ms: int) -> int:
        self._seen_ms = max(self._seen_ms, now_ms)
        return super().due_ms(now_ms) if self.is_open or not self._taken else self._seen_ms + 100

    def take(self, nbytes: int, now_ms: float) -> None:
        self._taken += 1
        super().take(nbytes, now_ms)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Copied batches stay in the memory of a bookie, too."""
    config = BookieConfig(journal_write_data=False, direct_add_bytes=2 * MIB)
    with LocalCluster(bookies=2, bookie_config=config) as cluster:
        yield cluster


def _await_first_batch(target: LocalBookie, ledger_id: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not read(target, ledger_id, 0, 0)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _await_end_of_limbo(target: LocalBookie, ledger_id: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while read(target, ledger_id, ENTRIES, ENTRIES)[1].verdict is not Verdict.NEGATIVE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_bookie_that_was_started_again_between_two_batches_holds_all_once_it_is_named(cluster: LocalCluster) -> None:
    written = [b"%d " % one * (ENTRY_BYTES // len(b"%d " % one)) for one in range(ENTRIES)]
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        with client.create_ledger(1, 1, 1) as writer:
            writer.append_batch(written)
        ledger_id, [source] = writer.ledger_id, writer.metadata.last_fragment.ensemble
        [target] = [one for one in cluster.bookies if one.bookie_id != source]
        rereplicator, rate = Rereplicator(client.context, AutoRecoveryConfig()), OneBatch()
        rereplicator._means = replace(rereplicator._means, pace=rate)
        copying = client.context.submit(rereplicator.rereplicate(ledger_id, {source}))
        _await_first_batch(target, ledger_id)
        target.kill()
        target.start()
        _await_end_of_limbo(target, ledger_id)
        assert not copying.done()
        rate.is_open = True
        assert copying.result(DEADLINE_S).is_whole
        assert target.bookie_id in client.ledger_metadata(ledger_id).last_fragment.ensemble
        found, end = read(target, ledger_id, 0, ENTRIES - 1)
        assert end is Status.OK
        assert [found.get(one) for one in range(ENTRIES)] == written
        assert payloads(client.open_ledger(ledger_id)) == written
