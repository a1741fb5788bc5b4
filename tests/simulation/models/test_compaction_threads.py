"""Compaction beside readers and the sync thread on a real disk: all reads are right. Protocol rule 43, situation 63."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compaction
from bk_spark.bookie.space.garbage_collection import LocalLedgers
from bk_spark.config import KIB
from bk_spark.wire.messages import ReadEnd, Status

KEPT = range(0, 40, 5)
ENTRIES = 6
ROUNDS = 3


def test_every_read_is_right_while_logs_are_copied_and_unlinked(harness, expected_payload) -> None:
    """Readers hold places that go away under them; adds, deletions and checkpoints go on."""
    harness.start(entry_log_file_bytes=256 * KIB, direct_add_bytes=4 * KIB)
    problems: list[object] = []
    ended = threading.Event()
    storage = harness.bookie.storage
    local = LocalLedgers(storage, lambda *_: False, lambda: 1 << 40, problems.extend)
    compaction = Compaction(local, RateLimiter(1 << 40, lambda: 0.0, lambda _: None))
    compacted = threading.Event()
    logs_deleted = 0

    def fill(ledger_ids: range, size: int) -> None:
        for entry_id in range(ENTRIES):
            for ledger_id in ledger_ids:
                harness.stage(harness.batch(ledger_id, entry_id, entry_id, size=size))
            assert all(reply.status is Status.OK for reply in harness.sync())

    def read() -> None:
        while not ended.is_set():
            for ledger_id in KEPT:
                found, end = harness.payloads(ledger_id, 0, ENTRIES - 1)
                expected = {one: expected_payload(ledger_id, one, 6 * KIB, 0) for one in range(ENTRIES)}
                if (found, end) != (expected, ReadEnd(Status.OK, ENTRIES)):
                    problems.append((ledger_id, end))

    def compact() -> None:
        nonlocal logs_deleted
        while not ended.is_set():
            logs_deleted += compaction.run(0.8, lambda: True).logs_deleted
            compacted.set()

    fill(range(40), 6 * KIB)
    threads = [threading.Thread(target=_guarded(one, problems), daemon=True) for one in (read, read, compact)]
    for thread in threads:
        thread.start()
    for number in range(ROUNDS):
        doomed = range(1000 * (number + 1), 1000 * (number + 1) + 10)
        fill(doomed, 6 * KIB)
        for ledger_id in [*doomed, *(one for one in range(number * 13, number * 13 + 13) if one not in KEPT and one < 40)]:
            assert harness.delete(ledger_id).status is Status.OK
        storage.checkpoint()
        compacted.clear()
        assert compacted.wait(30)
    ended.set()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert logs_deleted > ROUNDS
    harness.restart()
    for ledger_id in KEPT:
        harness.assert_holds(ledger_id, 0, ENTRIES - 1, size=6 * KIB)
    live_bytes = len(KEPT) * ENTRIES * 8 * KIB
    assert sum(path.stat().st_size for path in Path(harness.data_dir, "entry_log").iterdir()) < 6 * live_bytes


def _guarded(work: Callable[[], None], problems: list[object]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except BaseException as problem:
            problems.append(problem)

    return run
