"""All threads of a storage at once: adds, checkpoints, reads, deletions, compaction.

Ref: docs/rules.md, storage rules 4, 5 and 14.

What was acked before a read began is in its answer, whatever moves meanwhile: from the cache to the frozen one, into the
index, into another log. What was deleted before it began is not.
"""

from __future__ import annotations

import queue
import random
import threading

import pytest

from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compaction
from bk_spark.bookie.space.garbage_collection import LocalLedgers
from bk_spark.wire.messages import Status

GROUPS = 60
LEDGERS = (1, 2, 3)
SIZES = (10, 10, 1200)
"""Payload bytes; five entries of the last go straight into an entry log."""


class _Worker:
    """A background of one thread."""

    def __init__(self):
        self._steps = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __call__(self, step):
        self._steps.put(step)

    def _run(self):
        while (step := self._steps.get()) is not None:
            step()

    def stop(self):
        self._steps.put(None)
        self._thread.join(20)


class _Workers:
    """Threads that do something again and again until the end; the first error of each is kept."""

    def __init__(self):
        self.problems = []
        self.rounds = []
        self._is_over = threading.Event()
        self._threads = []

    def start(self, step):
        thread = threading.Thread(target=self._run, args=(step,))
        self._threads.append(thread)
        thread.start()

    def _run(self, step):
        rounds = 0
        try:
            while not self._is_over.is_set():
                step()
                rounds += 1
        except Exception as problem:  # told by the test
            self.problems.append(problem)
        self.rounds.append(rounds)

    def end(self):
        self._is_over.set()
        for thread in self._threads:
            thread.join(20)


@pytest.mark.timeout(60)
def test_nothing_acked_is_missed_and_nothing_deleted_is_seen_while_everything_moves(harness, expected_payload):
    worker = _Worker()
    harness.background = worker
    harness.start(write_cache_bytes=8_000, checkpoint_bytes=60_000, entry_log_file_bytes=30_000, journal_file_bytes=20_000)
    acked = dict.fromkeys(LEDGERS, 0)
    deleted = []
    chosen = random.Random(3)

    def read():
        ledger_id = chosen.choice(LEDGERS)
        count, gone = acked[ledger_id], list(deleted)
        if count:
            first = chosen.randrange(count)
            found, end = harness.payloads(ledger_id, first, count - 1)
            assert (end.status, sorted(found)) == (Status.OK, list(range(first, count))), end
            assert all(one == expected_payload(ledger_id, entry_id, len(one), 0) for entry_id, one in found.items())
        if gone:
            assert harness.read(chosen.choice(gone), 0, 0)[1].status is Status.NO_SUCH_LEDGER

    storage = harness.bookie.storage
    local = LocalLedgers(storage, lambda *_: False, lambda: 1 << 40, lambda batches: pytest.fail(f"damaged: {batches}"))
    compaction = Compaction(local, RateLimiter(1 << 40, lambda: 0.0, lambda _: None))
    freed = []

    def compact():
        storage.request_checkpoint(roll=True)
        freed.append(compaction.run(0.9, lambda: True).logs_deleted)

    workers = _Workers()
    for step in (read, read, compact):
        workers.start(step)
    for group in range(GROUPS):
        for ledger_id in LEDGERS:
            size = SIZES[(group + ledger_id) % len(SIZES)]
            harness.stage(harness.batch(ledger_id, acked[ledger_id], acked[ledger_id] + 4, size=size))
        harness.stage(harness.batch(100 + group, 0, 4, size=1200))
        assert {reply.status for reply in harness.sync()} == {Status.OK}
        for ledger_id in LEDGERS:
            acked[ledger_id] += 5
        if group >= 2:
            assert harness.delete(98 + group).status is Status.OK
            deleted.append(98 + group)
    workers.end()
    assert workers.problems == []
    assert min(workers.rounds) > 0
    assert sum(freed) > 0
    worker.stop()
    harness.kill()
    harness.background = lambda step: step()
    harness.start()
    for ledger_id in LEDGERS:
        assert sorted(harness.payloads(ledger_id, 0, acked[ledger_id] - 1)[0]) == list(range(acked[ledger_id]))
    assert {harness.read(one, 0, 0)[1].status for one in deleted} == {Status.NO_SUCH_LEDGER}
