"""Stalls of a client's own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from bk_spark.local.cluster import LocalCluster

WRITER = """
import sys
from bk_spark import BookKeeper, ClientConfig
with BookKeeper(sys.argv[1], ClientConfig(add_timeout_s=1.5)) as client, client.create_ledger() as writer:
    writer.append(b"x")
    print("started", flush=True)
    for _ in range(2000):
        future = writer.append_async(b"x" * 50_000)
    future.result()
    print(sorted(writer._machine._ensemble.failed.values()), flush=True)
"""
"""100 MB: it is in the middle of them when it is suspended."""


def test_a_writer_that_was_suspended_longer_than_its_timeout_does_not_blame_the_bookies(cluster: LocalCluster) -> None:
    command = [sys.executable, "-c", WRITER, cluster.metadata_uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "started\n"
        os.kill(writer.pid, signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (writer.pid, signal.SIGCONT)).start()
        assert writer.stdout.readline() == "[]\n"
        assert writer.wait(60) == 0
