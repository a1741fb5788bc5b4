"""Writers of rows that are killed again and again, and a bookie now and then: every confirmed row is there once, in order."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log
from tests.checkout import ROOT
from tests.soak.rows.writer import KEYS, LANES

KILLS = 20
LIFE_S = 1.5
"""Of a writer behind its first confirmation, at most: some rolls, or some commits."""
DEADLINE_S = 120.0


def confirmed(path: Path) -> list[tuple[int, int]]:
    text = path.read_text() if path.exists() else ""
    return [(int(key), int(number)) for key, number in (line.split() for line in text.rpartition("\n")[0].splitlines())]


def await_progress(path: Path, writer: subprocess.Popen[bytes], before: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(confirmed(path)) <= before:
        assert writer.poll() is None, "the writer ended by itself"
        assert time.monotonic() < deadline, "nothing was confirmed"
        time.sleep(0.02)


def check_lanes(log: Log, rows: list[tuple[int, int]]) -> None:
    """All lanes together have all rows, and each key is in one of them, in order."""
    lanes = [[(row["key"], row["number"]) for row in log.read_rows(lane=lane).read_all().to_pylist()] for lane in range(LANES)]
    assert sorted(row for lane in lanes for row in lane) == sorted(rows)
    for key in range(KEYS):
        (held,) = [lane for lane in lanes if any(other == key for other, _ in lane)]
        assert [row for row in held if row[0] == key] == [row for row in rows if row[0] == key]


@pytest.mark.parametrize("kind", ["commits", "lanes", "leader"])
def test_every_confirmed_row_is_there_once_and_in_order_for_its_key(kind: str, tmp_path: Path) -> None:
    chosen = random.Random(7)
    name, told = f"rows-{uuid.uuid4().hex}", tmp_path / "confirmed"
    with LocalCluster(bookies=4) as cluster, BookKeeper(cluster.metadata_uri) as client:
        for kill in range(KILLS):
            command = [sys.executable, "-m", "tests.soak.rows.writer", cluster.metadata_uri, name, kind, str(told)]
            before = len(confirmed(told))
            with subprocess.Popen(command, cwd=ROOT) as writer:
                await_progress(told, writer, before)
                bookie = cluster.bookies[chosen.randrange(4)] if kill % 4 == 3 else None
                if bookie is not None:
                    bookie.kill()
                time.sleep(chosen.uniform(0, LIFE_S))
                writer.kill()
            if bookie is not None:
                bookie.start()
        log = client.open_log(name)
        log.recover()
        rows = [(row["key"], row["number"]) for row in log.read_rows().read_all().to_pylist()]
        assert log.versions()[-1].total.rows == len(rows)
        if kind == "lanes":
            check_lanes(log, rows)
    counts = Counter(rows)
    assert set(counts.values()) == {1}
    assert set(confirmed(told)) <= set(rows)
    for key in range(KEYS):
        assert [number for other, number in rows if other == key] == list(range(sum(other == key for other, _ in rows)))
