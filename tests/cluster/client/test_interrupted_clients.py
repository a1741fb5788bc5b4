"""Clients whose opening or closing is interrupted by real signals, on a real cluster: what stays of them is nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT

PROGRAM = """
    import gc, os, random, signal, sys, time
    from bk_spark import BookKeeper

    def counts():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(3):
        with BookKeeper(sys.argv[1]) as client:
            writer = client.create_ledger()
            writer.append(b"x")
        began_s = time.monotonic()
        with BookKeeper(sys.argv[1]) as client:
            client.list_bookies()
        took_s = time.monotonic() - began_s
    time.sleep(0.5)
    chance, interrupted, before = random.Random(1), 0, counts()
    for _ in range(60):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, took_s))
            with BookKeeper(sys.argv[1]) as client:
                client.list_bookies()
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        client = None
    deadline_s = time.monotonic() + 30
    while (after := counts()) > before or after[1] > before[1]:
        if time.monotonic() > deadline_s:
            break
        gc.collect()
        time.sleep(0.05)
    print(interrupted >= 10, after[0] <= before[0], after[1] <= before[1], interrupted, before, after)
"""


def test_sixty_clients_that_are_interrupted_leave_no_thread_and_no_descriptor(cluster: LocalCluster) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), cluster.metadata_uri]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True True"), done.stdout
