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


FORKED = """
    import os, sys, threading, time
    import pyarrow as pa
    from bk_spark import BookKeeper, ConfigError

    def said(name, call):
        began_s = time.monotonic()
        try:
            call()
        except ConfigError as problem:
            assert "forked from process" in str(problem) and "spawn" in str(problem), problem
            assert time.monotonic() - began_s < 2, name
            return
        raise AssertionError(f"{name} raised nothing")

    def in_child(check):
        child = os.fork()
        if child == 0:
            try:
                check()
            except BaseException as problem:
                print(repr(problem), flush=True)
                os._exit(1)
            os._exit(0)
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, 9)
        return "it hangs"
"""


def test_every_call_and_every_future_of_a_client_ends_at_once_in_a_forked_process(cluster: LocalCluster) -> None:
    """Also those that another thread was waiting for when it was forked, and a new client after the last one was closed."""
    said = run(
        FORKED
        + """
    with BookKeeper(sys.argv[1]) as client:
        writer = client.create_ledger()
        writer.append(b"x")
        reader = client.open_ledger(writer.ledger_id, recover=False)
        assert reader.wait_for_last_add_confirmed(-1, 30) == 0
        reading = reader.read(0, 0)
        log = client.open_log(f"forked-{os.getpid()}", create=True)
        rows = log.open_row_writer(pa.schema([("i", pa.int64())]))
        rows.append({"i": 1})
        adv = client.create_ledger_adv()
        beyond = adv.append_async(5, b"waits for the entry before it")
        threading.Thread(target=reader.wait_for_last_add_confirmed, args=(99, 30), daemon=True).start()
        calls = {
            "append": lambda: writer.append(b"y"), "append_async": lambda: writer.append_async(b"y"),
            "append_batch": lambda: writer.append_batch([b"y"]), "force": writer.force, "close": writer.close,
            "a future": beyond.result,
            "a long poll": lambda: reader.wait_for_last_add_confirmed(1000, 2), "a read": lambda: list(reader.read(0, 0)),
            "a read that had begun": lambda: list(reading), "the lac": reader.read_last_add_confirmed,
            "create_ledger": client.create_ledger, "open_ledger": lambda: client.open_ledger(writer.ledger_id),
            "list_ledgers": lambda: list(client.list_ledgers()), "list_bookies": client.list_bookies,
            "open_log": lambda: client.open_log("other", create=True), "row": lambda: rows.append({"i": 2}),
            "row_async": lambda: rows.append_async({"i": 2}), "flush": rows.flush, "close of rows": rows.close,
            "read_rows": lambda: log.read_rows().read_all(), "append_rows": lambda: log.append_rows(rows.schema.empty_table()),
            "a new client": lambda: BookKeeper(sys.argv[1]), "the client's close": client.close,
        }
        def check():
            assert beyond.done()
            for name, call in calls.items():
                said(name, call)
        print(in_child(check))
        assert writer.append(b"the parent goes on") == 1
        rows.close()
    print(in_child(lambda: said("a client after one that was closed", lambda: BookKeeper(sys.argv[1]))))
    """,
        cluster.metadata_uri,
    )
    assert said.split() == ["0", "0"]


def test_in_a_process_forked_at_any_moment_every_call_and_future_ends_at_once() -> None:
    """A sample of ``tests.soak.interrupts``, on bookies in memory, in a process of its own."""
    said = run(
        """
        from random import Random
        from tests.soak.interrupts.bookies import MemoryClient
        from tests.soak.interrupts.case import CONFIG
        from tests.soak.interrupts.forked import Forks

        forks = Forks(MemoryClient(CONFIG), Random(1))
        print({forks.play() for _ in range(30)})
        forks.close()
        """,
        "",
    )
    assert said == "{'a fork'}"
