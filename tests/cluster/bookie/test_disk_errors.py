"""A disk that fails under a real process: unknown, never negative. Ref: docs/rules.md, storage rule 6; situations 58 and 75."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from bk_spark import BookKeeper
from bk_spark.bookie.server.sync_thread import CheckpointThread
from bk_spark.config import MIB, BookieConfig
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import LocalBookie, LocalCluster, bookie_command
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.asked_bookie import AskedBookie, allow_any_id
from tests.cluster.bookie.limited_bookie import limited_bookie_command, set_disk
from tests.cluster.bookie.served import DEADLINE_S, Served
from tests.cluster.live_ledgers import BRISK, payloads

pytestmark = pytest.mark.timeout(120)
CONFIG = BookieConfig(disk_check_s=0.1, session_timeout_s=2.0, write_cache_bytes=MIB, direct_add_bytes=100_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies whose disks obey their disk.json. Each test leaves them running, and uses ledgers of its own."""
    with (
        mock.patch.object(local_cluster, "bookie_command", limited_bookie_command),
        LocalCluster(3, tmp_path_factory.mktemp("cluster"), bookie_config=CONFIG) as made,
    ):
        allow_any_id(made)
        yield made


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def modes(client: BookKeeper) -> dict[str, bool]:
    return {one.bookie_id: one.read_only for one in client.list_bookies()}


@pytest.mark.parametrize("verb", ["write", "sync"])
def test_a_bookie_whose_disk_fails_serves_what_it_has_denies_nothing_and_stays_read_only_until_it_is_started_again(
    cluster: LocalCluster, verb: str
) -> None:
    broken = cluster.bookies[0]
    with BookKeeper(cluster.metadata_uri, BRISK) as client, AskedBookie(broken) as raw:
        writer = client.create_ledger(3, 3, 2)
        assert writer.append(b"first") == 0
        # Two of three confirm it: the bookie whose disk is to fail may be the third.
        wait_until(lambda: raw.read(writer.ledger_id, 0, 0) == ({0: b"first"}, Status.OK))
        set_disk(broken.data_dir, fails=[(verb, "journal")])
        assert writer.append(b"other") == 1
        wait_until(lambda: modes(client).get(broken.bookie_id, False))
        serves_what_it_has_and_denies_nothing(raw, writer.ledger_id)

        set_disk(broken.data_dir)  # the disk is well again, and nobody has looked at it
        several_checks_later = time.monotonic() + 5 * CONFIG.disk_check_s
        while time.monotonic() < several_checks_later:
            assert modes(client)[broken.bookie_id]
            assert raw.add(10**8, 0, b"new") is Status.IO_ERROR
        writer.close()
        started_again(cluster, broken, client, writer.ledger_id)


def serves_what_it_has_and_denies_nothing(raw: AskedBookie, ledger_id: int) -> None:
    assert raw.read(ledger_id, 0, 0) == ({0: b"first"}, Status.OK)
    assert raw.read(ledger_id, 2, 2)[1] is Status.IO_ERROR
    assert raw.read(10**8, 0, 0)[1] is Status.IO_ERROR
    assert raw.read(ledger_id, 0, 0, fence=True)[1] is Status.IO_ERROR
    assert raw.add(10**8, 0, b"new", recovery=True) is Status.IO_ERROR
    status = raw.administer(AdminOperation.BOOKIE_STATUS)
    assert status.figures["failed"] == 1
    assert "journal" in status.detail


def started_again(cluster: LocalCluster, broken: LocalBookie, client: BookKeeper, ledger_id: int) -> None:
    """It may have lost something: what the others have is brought back, and then it is as good as before."""
    broken.kill()
    broken.start()
    with AskedBookie(broken) as raw:
        wait_until(lambda: raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0)
        assert not modes(client)[broken.bookie_id]
        assert raw.read(ledger_id, 0, 1) == ({0: b"first", 1: b"other"}, Status.OK)
        assert raw.read(10**8, 0, 0)[1] is Status.NO_SUCH_LEDGER
    assert payloads(client.open_ledger(ledger_id)) == [b"first", b"other"]


def test_a_process_without_a_free_descriptor_refuses_what_needs_one_and_loses_nothing(cluster: LocalCluster) -> None:
    """Storage rule 17. What needs no new file goes on, and so does everything as soon as a file can be opened."""
    bookie = cluster.bookies[1]
    bookie.stop()
    with mock.patch.object(local_cluster, "bookie_command", bookie_command):  # the other kind opens its disk.json all the time
        bookie.start()
    one, two, three = range(2 * 10**8, 2 * 10**8 + 3)
    with AskedBookie(bookie) as raw:
        assert raw.add(one, 0, b"small") is Status.OK
        usual = resource.prlimit(bookie.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(bookie.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
        assert raw.add(two, 0, bytes(200_000)) is Status.IO_ERROR, "its entry log cannot be opened"
        assert raw.add(one, 1, b"small") is Status.OK, "its journal is open"
        acked = 0
        while raw.add(three, acked, bytes(50_000)) is Status.OK:
            acked += 1
            assert acked < 500
        assert acked > 20, "until both caches are full, because no checkpoint can open its file"
        assert raw.read(one, 0, 1) == ({0: b"small", 1: b"small"}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 0

        resource.prlimit(bookie.pid, resource.RLIMIT_NOFILE, usual)
        assert raw.add(two, 0, bytes(200_000)) is Status.OK
        assert raw.add(three, acked, bytes(50_000)) is Status.OK
        bookie.kill()
        bookie.start()
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0
        assert raw.read(two, 0, 0) == ({0: bytes(200_000)}, Status.OK)
        found, status = raw.read(three, 0, acked)
        assert (len(found), status) == (acked + 1, Status.OK)


def test_a_checkpoint_thread_that_dies_ends_the_server_with_its_error(harness) -> None:
    served = Served(harness)
    problem = RuntimeError("a bug")

    def die() -> None:
        raise problem

    with CheckpointThread() as checkpoints:
        checkpoints.on_failure(served.server.fail)
        checkpoints(die)

    async def end() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await served.server.ended

    with pytest.raises(RuntimeError, match="a bug"):
        served.run(end())
    served.close()
