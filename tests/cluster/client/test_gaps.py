"""Gaps that a writer knows of, over real bookies that are started again one after the other. Ref: protocol rule 63."""

from __future__ import annotations

import dataclasses
import time

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads
from tests.cluster.replication.test_rereplicator import assert_whole, held
from tests.cluster.replication.test_worker import eventually, worker

BRISK_WORKER = AutoRecoveryConfig(retry_s=0.2)
"""It gives the writers of open tails their usual time."""

QUICK = dataclasses.replace(BRISK, replacement_retry_s=0.1)
"""A client that soon sees a bookie again that was started."""

OUTAGE_ENTRIES = 40
"""Confirmed while a bookie is away."""


def _append_until(writer: WriteHandle, expected: list[bytes], fragments: int) -> None:
    """Go on until the ledger has a new fragment of all three bookies that takes entries."""
    deadline = time.monotonic() + DEADLINE_S
    while len(writer.metadata.fragments) <= fragments:
        assert time.monotonic() < deadline
        expected.append(b"until %d" % len(expected))
        writer.append(expected[-1])
        time.sleep(0.01)  # a bookie takes a second to start: thousands of entries would say no more


def _roll(writer: WriteHandle, bookie: LocalBookie, expected: list[bytes]) -> None:
    bookie.kill()
    for _ in range(OUTAGE_ENTRIES):
        expected.append(b"without %d" % len(expected))
        writer.append(expected[-1])
    fragments = len(writer.metadata.fragments)
    bookie.start()
    _append_until(writer, expected, fragments)


def _lacking(client: BookKeeper, ledger_id: int) -> set[str]:
    """The bookies that do not hold all that the metadata says."""
    metadata = client.ledger_metadata(ledger_id)
    assert metadata.last_entry_id is not None
    return {
        fragment.ensemble[slot]
        for fragment, first, last in metadata.fragment_ranges(metadata.last_entry_id)
        for slot in range(metadata.ensemble_size)
        if held(client, metadata, fragment, slot, last) != metadata.slot_pattern(slot).ids(first, last).tolist()
    }


@pytest.mark.timeout(300)
def test_in_a_rolling_restart_every_fragment_that_lacks_copies_is_marked_before_and_after_the_close_and_soon_none_lacks_any(
    cluster: LocalCluster,
) -> None:
    """A worker repairs what has an end while the writer goes on, which it does not displace; and the rest once it is closed."""
    expected: list[bytes] = []
    with BookKeeper(cluster.metadata_uri, QUICK) as client:
        marks = UnderReplication(client.metadata_store, client.znodes)
        writer = client.create_ledger(3, 3, 2)
        ledger_id = writer.ledger_id
        first, *others = cluster.bookies
        with worker(cluster, BRISK_WORKER) as (working, _):
            _roll(writer, first, expected)
            eventually(lambda: working.made_whole >= 1 and marks.mark_of(ledger_id) is None)
            assert not client.ledger_metadata(ledger_id).is_closed
        for bookie in others:
            _roll(writer, bookie, expected)
        expected.append(b"last")
        writer.append(expected[-1])
        writer.close()
        eventually(lambda: client.ledger_metadata(ledger_id).is_closed)
        lacking = _lacking(client, ledger_id)
        mark = marks.mark_of(ledger_id)
        assert lacking  # or this shows nothing
        assert mark is not None
        assert lacking <= set(mark.missing)
        with worker(cluster):
            eventually(lambda: marks.mark_of(ledger_id) is None)
        assert_whole(client, ledger_id, set())
        assert payloads(client.open_ledger(ledger_id)) == expected
