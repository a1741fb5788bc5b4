"""Real processes: a disk that goes back to a snapshot of the current boot, and a bookie whose ZooKeeper is away.

Ref: docs/rules.md, storage rule 9.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.disk import TEMPORARY_SUFFIX
from bk_spark.bookie.identity.cookie_file import read_znode
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import BookieConfig
from bk_spark.errors import ProcessFailedError
from bk_spark.local.cluster import LocalBookie, LocalCluster, bookie_command
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.wire.messages import Status
from tests.budget import IS_SOAK
from tests.cluster.bookie.asked_bookie import AskedBookie
from tests.cluster.bookie.raw_bookie import add, payload, read
from tests.unit.bookie.identity.bookie_home import ZNODES

DEADLINE_S = 60.0
KILLS = 12 if IS_SOAK else 3
QUICK = BookieConfig(epoch_interval_s=0.2, epoch_timeout_s=60, session_timeout_s=4)
SHORT = BookieConfig(epoch_interval_s=0.5, epoch_timeout_s=10, session_timeout_s=4, disk_check_s=0.1)
OPEN = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


@pytest.fixture(scope="module")
def quick() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=1, bookie_config=QUICK) as cluster:
        yield cluster


@pytest.fixture
def store(quick: LocalCluster) -> Iterator[ZooKeeperStore]:
    with connect(quick.metadata_uri, connect_timeout_s=30.0, session_timeout_s=10.0) as connected:
        yield connected


def epoch_of(store: ZooKeeperStore, bookie: LocalBookie) -> int:
    found = read_znode(store, ZNODES, bookie.bookie_id)
    assert found is not None
    assert found.cookie is not None
    return found.cookie.boot.epoch


def await_moves(store: ZooKeeperStore, bookie: LocalBookie, moves: int) -> None:
    before = epoch_of(store, bookie)
    until(lambda: epoch_of(store, bookie) >= before + moves)


def test_a_disk_that_goes_back_to_a_copy_of_this_boot_is_refused_and_then_denies_nothing(
    quick: LocalCluster, store: ZooKeeperStore, tmp_path: Path
) -> None:
    bookie = quick.bookies[0]
    with BookKeeper(quick.metadata_uri) as client:
        writer = client.create_ledger(**OPEN)
        writer.append(b"before")
        await_moves(store, bookie, 1)
        temporary = shutil.ignore_patterns(f"*{TEMPORARY_SUFFIX}")  # a move renames them meanwhile
        shutil.copytree(bookie.data_dir, tmp_path / "copy", ignore=temporary)
        for number in range(50):
            writer.append(b"after %d" % number)
        await_moves(store, bookie, 2)
    bookie.kill()
    shutil.rmtree(bookie.data_dir)
    shutil.copytree(tmp_path / "copy", bookie.data_dir)
    with pytest.raises(ProcessFailedError, match="is a copy, or was restored from an older state"):
        bookie.start()
    bookie.config = replace(QUICK, automatic_cookie_repair=True)
    bookie.start()
    try:
        found, end = read(bookie, writer.ledger_id, 0, 50)
        assert sorted(found) == [0]
        assert end is Status.UNKNOWN
    finally:
        bookie.config = QUICK


def test_kills_at_any_moment_of_the_moves_put_nothing_into_limbo(quick: LocalCluster, store: ZooKeeperStore) -> None:
    bookie = quick.bookies[0]
    offset = bookie.log.stat().st_size
    for round_number in range(KILLS):
        await_moves(store, bookie, 1)
        time.sleep(0.2 * round_number / KILLS)  # not a wait: the kill meets each part of an interval
        bookie.kill()
        bookie.start()
    assert "may have lost data" not in bookie.log.read_bytes()[offset:].decode()


def test_a_bookie_that_a_clone_has_taken_ends(quick: LocalCluster, store: ZooKeeperStore, tmp_path: Path) -> None:
    """The clone could start because the original was cut off from ZooKeeper for longer than its session lasts."""
    original = quick.bookies[0]
    original.suspend()
    shutil.copytree(original.data_dir, tmp_path / "copy")
    boot = boot_of(store, original)
    unregister(store, ZNODES, original.bookie_id)
    config = replace(QUICK, automatic_cookie_repair=True)
    clone = subprocess.Popen(bookie_command(tmp_path / "copy", quick.metadata_uri, 0, config), stderr=subprocess.DEVNULL)
    try:
        until(lambda: boot_of(store, original) > boot)
        offset = original.log.stat().st_size
        original.resume()
        until(lambda: original.pid is None)
        # It read the cookie before it was suspended, and its compare-and-set was refused; or it reads it now.
        assert re.search(
            r"the cookie of bookie \S+ .*another process (runs|starts or repairs)", original.log.read_text()[offset:]
        )
    finally:
        clone.terminate()
        clone.wait(DEADLINE_S)
    original.config = config  # what it acked since the copy was made is unknown to the clone: it starts in limbo
    original.start()
    original.config = QUICK


def boot_of(store: ZooKeeperStore, bookie: LocalBookie) -> int:
    found = read_znode(store, ZNODES, bookie.bookie_id)
    assert found is not None
    assert found.cookie is not None
    return found.cookie.boot.number


def test_an_outage_of_zookeeper_stops_no_writer_unless_it_outlasts_the_promise(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster(bookies=1, bookie_config=SHORT) as cluster:
        bookie = cluster.bookies[0]
        with BookKeeper(cluster.metadata_uri) as client:
            writer, empty = client.create_ledger(**OPEN), client.create_ledger(**OPEN).ledger_id
            writer.append(b"before")
            cluster.zookeeper.suspend()
            suspended_s = time.monotonic()
            while time.monotonic() < suspended_s + SHORT.epoch_timeout_s / 4:
                writer.append(b"meanwhile")
            cluster.zookeeper.resume()
            for number in range(20):
                writer.append(b"afterwards %d" % number)
            assert "takes no changes" not in said(bookie)

        cluster.zookeeper.stop()
        until(lambda: "takes no changes and serves reads alone: its epoch in the metadata store has not moved" in said(bookie))
        with AskedBookie(bookie) as asked:
            assert asked.add(empty, 0, payload(0, 10)) is Status.READ_ONLY
            assert asked.add(empty, 0, payload(0, 10), recovery=True) is Status.READ_ONLY
            assert asked.read(writer.ledger_id, 0, 0)[0] == {0: b"before"}
        cluster.zookeeper.start()
        until(lambda: "takes changes again: its epoch has moved" in said(bookie))
        until(lambda: add(bookie, empty, 0) is Status.OK)
        until(lambda: is_listed_as_writable(cluster))
        with BookKeeper(cluster.metadata_uri) as client:
            client.create_ledger(**OPEN).append(b"again")
        assert main(["bookie", "status", bookie.bookie_id, "--metadata", cluster.metadata_uri]) == 0
        assert "lapsed" in capsys.readouterr().out


def is_listed_as_writable(cluster: LocalCluster) -> bool:
    with BookKeeper(cluster.metadata_uri) as client:
        return [bookie.read_only for bookie in client.list_bookies()] == [False]


def said(bookie: LocalBookie) -> str:
    return bookie.log.read_text()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
