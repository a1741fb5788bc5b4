"""Garbage collection in real bookie processes: space comes back, kills do no harm. Protocol rules 43 and 44, situation 63."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bk_spark import BookKeeper, LocalCluster
from bk_spark.local.cluster import LocalBookie
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.live_ledgers import BRISK

DEADLINE_S = 60.0
LEDGERS, ENTRIES, ENTRY_BYTES = 10, 10, 100_000


def test_the_space_of_deleted_ledgers_returns_and_a_kill_in_the_middle_does_no_harm() -> None:
    payloads = [os.urandom(ENTRY_BYTES) for _ in range(ENTRIES)]
    with LocalCluster(bookies=2) as cluster, BookKeeper(cluster.metadata_uri, BRISK) as client:
        ledger_ids = _filled(client, payloads)
        before = [_entry_log_bytes(bookie) for bookie in cluster.bookies]
        for ledger_id in ledger_ids[2:]:
            client.delete_ledger(ledger_id)
        killed, other = cluster.bookies
        for bookie in cluster.bookies:
            _collect(client, bookie)
        _ask(client, killed, AdminOperation.GC_RUN)
        killed.kill()
        killed.start()
        _collect(client, other)
        for _ in range(2):  # its first round was forgotten
            _collect(client, killed)
        after = [_entry_log_bytes(bookie) for bookie in cluster.bookies]
        assert all(now < 0.4 * then for now, then in zip(after, before, strict=True)), (before, after)
        other.suspend()
        _assert_readable(client, ledger_ids[:2], payloads)
        other.resume()


def _filled(client: BookKeeper, payloads: list[bytes]) -> list[int]:
    """Ledgers side by side in the same entry logs."""
    writers = [client.create_ledger(2, 2, 2) for _ in range(LEDGERS)]
    for payload in payloads:
        for future in [writer.append_async(payload) for writer in writers]:
            future.result()
    for writer in writers:
        writer.close()
    return [writer.ledger_id for writer in writers]


def _ask(client: BookKeeper, bookie: LocalBookie, operation: AdminOperation) -> dict[str, int]:
    reply = client.administer_bookie(bookie.bookie_id, operation)
    assert (reply.status, reply.detail) == (Status.OK, "")
    return dict(reply.figures)


def _collect(client: BookKeeper, bookie: LocalBookie) -> None:
    """Force a run and wait for its end."""
    runs = _ask(client, bookie, AdminOperation.GC_RUN)["runs"]
    deadline = time.monotonic() + DEADLINE_S
    while _ask(client, bookie, AdminOperation.GC_STATUS)["runs"] == runs:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _entry_log_bytes(bookie: LocalBookie) -> int:
    return sum(path.stat().st_blocks * 512 for path in Path(bookie.data_dir, "entry_log").iterdir())


def _assert_readable(client: BookKeeper, ledger_ids: list[int], payloads: list[bytes]) -> None:
    for ledger_id in ledger_ids:
        with client.open_ledger(ledger_id) as reader:
            found = [one for batch in reader.read(0, ENTRIES - 1) for one in batch.column("payload").to_pylist()]
        assert found == payloads
