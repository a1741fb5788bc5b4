"""Processes that a program starts while it uses a client. Each test is a program of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT


def run(program: str, metadata_uri: str) -> str:
    """What the program prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), metadata_uri]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_programs_that_are_started_while_a_client_is_busy_run(cluster: LocalCluster) -> None:
    """With a function to call in the child, as PySpark starts its JVM: Python then forks."""
    said = run(
        """
        import subprocess, sys, threading
        from bk_spark import BookKeeper

        is_over = threading.Event()

        def write():
            while not is_over.is_set():
                writer.append_batch([b"x" * 100] * 50)

        with BookKeeper(sys.argv[1]) as client, client.create_ledger() as writer:
            writer.append(b"connected")
            writing = threading.Thread(target=write)
            writing.start()
            codes = {subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(100)}
            is_over.set()
            writing.join()
        print(codes)
        """,
        cluster.metadata_uri,
    )
    assert said == "{0}"


def test_a_client_in_a_process_forked_from_one_that_used_a_client_is_refused(cluster: LocalCluster) -> None:
    said = run(
        """
        import os, sys
        from bk_spark import BookKeeper, ConfigError

        with BookKeeper(sys.argv[1]) as client:
            client.list_bookies()
        child = os.fork()
        if child == 0:
            try:
                BookKeeper(sys.argv[1])
            except ConfigError as problem:
                print(problem, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
        cluster.metadata_uri,
    )
    assert "forked from process" in said
    assert "spawn" in said
