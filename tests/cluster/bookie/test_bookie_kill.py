"""A real process, killed with SIGKILL at random moments: what it acked is there. Ref: docs/rules.md, storage rule 12."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bk_spark.wire.messages import Status
from tests.checkout import ROOT

ROUNDS = 5
CHILD = """
import sys
from pathlib import Path
from tests.unit.bookie.harness import Harness
harness = Harness(Path(sys.argv[1]).parent / "child", Path(sys.argv[1]))
position = int(sys.argv[2])
harness.start(write_cache_bytes=60_000, checkpoint_bytes=300_000, journal_file_bytes=30_000, entry_log_file_bytes=200_000)
while True:
    group = [(position + 3 * one, 2000 if one % 3 == 0 else 10) for one in range(5)]
    for first, size in group:
        harness.stage(harness.batch(1, first, first + 2, size=size))
    harness.stage_fence(1000 + position)
    for (first, size), reply in zip([*group, (position, "fence")], harness.sync(), strict=True):
        assert reply.status.name == "OK", reply
        sys.stdout.write(f"{first} {size}\\n")
    sys.stdout.flush()
    position += 15
"""


def _run_and_kill(data_dir: Path, acks: Path, position: int, ack_bytes: int) -> tuple[dict[int, int], list[int]]:
    """What a child acked before it was killed, which comes at any moment after ``ack_bytes`` of acks.

    First ids with their sizes, and ledgers that were fenced.
    """
    command = [sys.executable, "-c", CHILD, str(data_dir), str(position)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with acks.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, env=environment)
        deadline = time.monotonic() + 20
        while acks.stat().st_size < ack_bytes and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)  # the child needs the processor
        child.send_signal(signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
    whole = acks.read_text().rpartition("\n")[0]
    acked = [line.split() for line in whole.splitlines()]
    return {int(one): int(size) for one, size in acked if size != "fence"}, [
        1000 + int(one) for one, size in acked if size == "fence"
    ]


def _read_all(harness, first: int, last: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while first <= last:
        part, end = harness.payloads(1, first, last)
        assert end.status is Status.OK
        found, first = found | part, end.next_entry_id
    return found


@pytest.mark.timeout(60)
def test_every_acked_entry_is_read_and_every_fence_holds_after_kills_at_random_moments(harness, expected_payload, tmp_path):
    chosen = random.Random(7)
    acked: dict[int, int] = {}
    fenced: list[int] = []
    ranges: list[tuple[int, int]] = []
    for _ in range(ROUNDS):
        position = max(acked, default=-3) + 3 + 300
        new, fences = _run_and_kill(harness.data_dir, tmp_path / "acks", position, chosen.randrange(1, 6000))
        assert sorted(new) == list(range(position, max(new) + 1, 3))
        acked |= new
        fenced += fences
        ranges.append((position, max(new) + 2))
        harness.start(write_cache_bytes=60_000, checkpoint_bytes=300_000)
        for first, last in ranges:
            found = _read_all(harness, first, last)
            assert found == {one: expected_payload(1, one, acked[one - (one - first) % 3], 0) for one in range(first, last + 1)}
        for ledger_id in fenced:
            harness.stage(harness.batch(ledger_id, 0, 2))
        assert {reply.status for reply in harness.sync()} <= {Status.FENCED}
        harness.stop()
    assert fenced
    assert len(acked) > 5 * ROUNDS
