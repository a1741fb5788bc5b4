"""An operator makes a running bookie read-only and writable again. Ref: docs/rules.md, protocol rule 47."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from bk_spark import BookKeeper
from bk_spark.bookie.admission import ORDERED
from bk_spark.cli import main
from bk_spark.config import MIB, BookieConfig
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import LocalCluster
from bk_spark.wire.messages import Status
from tests.cluster.bookie.asked_bookie import AskedBookie, allow_any_id
from tests.cluster.bookie.limited_bookie import limited_bookie_command, set_disk
from tests.cluster.live_ledgers import BRISK

DEADLINE_S = 60.0
CONFIG = BookieConfig(write_cache_bytes=MIB, sync_queue_bytes=MIB, checkpoint_bytes=4 * MIB, disk_check_s=0.1)
LEDGER = 10**9


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalCluster]:
    """A cluster of one bookie, whose disk can be made full."""
    with ExitStack() as undo:
        undo.enter_context(mock.patch.object(local_cluster, "bookie_command", limited_bookie_command))
        cluster = undo.enter_context(LocalCluster(1, bookie_config=CONFIG))
        allow_any_id(cluster)
        yield cluster


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def switch(cluster: LocalCluster, state: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    command = ["bookie", "read-only", state, cluster.bookies[0].bookie_id, "--metadata", cluster.metadata_uri, "--json"]
    assert main(command) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def listed(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The bookie in the list; empty while it moves between two registrations."""
    capsys.readouterr()
    assert main(["bookie", "list", "--metadata", cluster.metadata_uri, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return json.loads(lines[0]) if lines else {}


def ready(cluster: LocalCluster) -> str:
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        (bookie,) = client.list_bookies() or [None]
    if bookie is None:  # it moves
        return ""
    try:
        with urllib.request.urlopen(f"http://{bookie.http}/ready", timeout=10) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()


def test_a_bookie_is_switched_read_only_and_back_by_command_and_the_list_and_ready_say_why(
    alone: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with AskedBookie(alone.bookies[0]) as raw:
        assert raw.add(LEDGER, 0, b"x") is Status.OK
        reply = switch(alone, "on", capsys)
        assert (reply["detail"], reply["read_only"]) == (ORDERED, 1)
        assert raw.add(LEDGER, 1, b"x") is Status.READ_ONLY
        assert raw.add(LEDGER + 1, 0, b"x") is Status.READ_ONLY
        assert raw.read(LEDGER, 0, 0) == ({0: b"x"}, Status.OK)
        assert raw.read(LEDGER, 0, 0, fence=True) == ({0: b"x"}, Status.OK)
        assert raw.add(LEDGER, 1, b"x", recovery=True) is Status.OK
        until(lambda: (listed(alone, capsys).get("mode"), listed(alone, capsys).get("why")) == ("read-only", ORDERED))
        assert ready(alone) == f"not ready: read-only: {ORDERED}\n"
        reply = switch(alone, "off", capsys)
        assert (reply["detail"], reply["read_only"]) == (None, 0)
        assert raw.add(LEDGER + 1, 0, b"x") is Status.OK
        until(lambda: (listed(alone, capsys).get("mode"), listed(alone, capsys).get("why")) == ("writable", None))
        until(lambda: ready(alone) == "ready\n")


def test_the_order_outlasts_that_the_storage_is_opened_anew_and_ends_with_the_process(
    alone: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (bookie,) = alone.bookies
    switch(alone, "on", capsys)
    with AskedBookie(bookie) as raw:
        set_disk(bookie.data_dir, full=["journal"])
        assert raw.add(LEDGER + 2, 0, b"x", recovery=True) is Status.IO_ERROR
        until(lambda: "failed: " in ready(alone))
        set_disk(bookie.data_dir)
        until(lambda: ready(alone) == f"not ready: read-only: {ORDERED}\n")
        assert raw.add(LEDGER + 3, 0, b"x") is Status.READ_ONLY
    bookie.stop()
    bookie.start()
    until(lambda: ready(alone) == "ready\n")
    with AskedBookie(bookie) as raw:
        assert raw.add(LEDGER + 3, 0, b"x") is Status.OK


def test_a_stranger_who_means_another_bookie_switches_nothing(alone: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Protocol rule 49."""
    command = ["bookie", "read-only", "on", "127.0.0.1:1-00000000", "--metadata", alone.metadata_uri]
    assert main(command) == 1
    assert "no bookie of this id runs" in capsys.readouterr().err
    assert ready(alone) == "ready\n"
