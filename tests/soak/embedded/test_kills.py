"""``embedded:DIR`` under kills of its users, its host, ZooKeeper and bookies: confirmed rows stay, and no process is left."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.checkout import ROOT

ROUNDS = 50
LIFE_S = 1.0
"""Of a user behind its first row, at most."""
DEADLINE_S = 180.0


def processes_of(directory: Path) -> list[int]:
    """Those whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(directory).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def confirmed(path: Path) -> set[int]:
    text = path.read_text() if path.exists() else ""
    return {int(line) for line in text.rpartition("\n")[0].splitlines()}


def test_confirmed_rows_stay_through_kills_of_every_process_and_none_is_left(tmp_path: Path) -> None:
    chosen = random.Random(3)
    directory, told = tmp_path / "data", tmp_path / "confirmed"
    seconds, ends = [], []
    for number in range(ROUNDS):
        command = [sys.executable, "-m", "tests.soak.embedded.user", str(directory), str(told)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as user:
            assert user.stdout is not None
            first, *found = user.stdout.readline().split()
            rows = [int(one) for one in found]
            assert rows == sorted(set(rows)), f"round {number}"
            assert confirmed(told) <= set(rows), f"round {number}"
            seconds.append(float(first))
            time.sleep(chosen.uniform(0, LIFE_S))
            others = [pid for pid in processes_of(directory) if pid != user.pid]
            victims = {"user": [], "all": others, "one of the cluster": [chosen.choice(others)]}
            end = chosen.choice(sorted(victims))
            ends.append(end)
            for pid in victims[end]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            user.kill()
    deadline = time.monotonic() + DEADLINE_S
    while processes_of(directory):
        assert time.monotonic() < deadline, f"left behind: {processes_of(directory)}"
        time.sleep(0.1)
    facts = {"ends": {one: ends.count(one) for one in set(ends)}, "rows": len(confirmed(told))}
    print(json.dumps({**facts, "seconds to the first row": [min(seconds), statistics.median(seconds), max(seconds)]}))
