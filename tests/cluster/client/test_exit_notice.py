"""What a program says that exits before its appends are confirmed. Each test is a program of its own, for many writers."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT

STAND_STILL = """
    import os, sys, threading
    import pyarrow as pa
    import bk_spark.aio
    from bk_spark import BookKeeper
    from bk_spark.client.driver.event_loop import EventLoop

    client = BookKeeper(sys.argv[1])
    never = threading.Event()

    def confirm_nothing_more():
        EventLoop.get().call_soon_threadsafe(never.wait)
"""


def said_at_exit(program: str, metadata_uri: str) -> list[str]:
    """What the program prints, and the lines that it leaves on stderr."""
    command = [sys.executable, "-c", textwrap.dedent(STAND_STILL) + textwrap.dedent(program), metadata_uri]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return [done.stdout.strip(), *done.stderr.splitlines()]


def test_a_program_that_exits_says_in_a_sentence_what_was_not_confirmed(cluster: LocalCluster) -> None:
    """Of writers of ledgers, of a log, and of rows; also of one that nobody refers to any more."""
    printed, said = said_at_exit(
        """
        confirmed, writer = client.create_ledger(), client.create_ledger()
        led = client.open_log("exit_led", create=True).open_writer()
        few = client.open_log("exit_rows", create=True).open_row_writer(pa.schema({"id": pa.int64()}), max_delay_s=3600)
        confirmed.append(b"stored")
        few.append([{"id": 1}])
        print(writer.ledger_id)
        confirm_nothing_more()
        writer.append_async(b"one")
        writer.append_batch_async([b"two", b"three"])
        led.append_async(b"an event")
        few.append_async([{"id": 2}, {"id": 3}])
        del writer
        """,
        cluster.metadata_uri,
    )
    appends = f"appends to ledger {printed} (3 entries), log 'exit_led' (1 entry), log 'exit_rows' (2 rows) are confirmed"
    assert appends in said
    assert "may be stored, or not" in said
    assert "Wait for their futures, or close the writer" in said


def test_a_program_of_coroutines_says_so_too(cluster: LocalCluster) -> None:
    printed, said = said_at_exit(
        """
        import asyncio

        async def main():
            client = await bk_spark.aio.connect(sys.argv[1])
            writer = await client.create_ledger()
            log = await client.open_log("exit_aio", create=True)
            few = await log.open_row_writer(pa.schema({"id": pa.int64()}), max_delay_s=3600)
            print(writer.ledger_id)
            confirm_nothing_more()
            await writer.append_async(b"one")
            await few.append_async([{"id": 1}])

        asyncio.run(main())
        """,
        cluster.metadata_uri,
    )
    assert f"ledger {printed} (1 entry), log 'exit_aio' (1 row)" in said


def test_a_program_is_silent_that_waited_or_closed_its_client_and_so_is_a_forked_one(cluster: LocalCluster) -> None:
    assert said_at_exit(
        """
        writer = client.create_ledger()
        writer.append_async(b"confirmed").result()
        with BookKeeper(sys.argv[1]) as other:
            gap = other.create_ledger_adv()
            gap.append_async(1, b"never confirmed")
        waiting = client.create_ledger_adv()
        beyond = waiting.append_async(1, b"confirmed later")
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        waiting.append(0, b"fills the gap")
        beyond.result()
        """,
        cluster.metadata_uri,
    ) == [""]
