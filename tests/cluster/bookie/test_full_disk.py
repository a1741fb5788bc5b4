"""A disk that is filled for real, under real processes. Ref: situation 68; docs/rules.md, protocol rule 47, storage rule 6."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from bk_spark import BookKeeper
from bk_spark.cli import main
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import BookKeeperError, ProcessFailedError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.asked_bookie import AskedBookie
from tests.cluster.bookie.limited_bookie import limited_bookie_command, set_disk
from tests.cluster.bookie.small_disks import SIZE, LimitedDirectory, SmallDisk, small_disk
from tests.cluster.live_ledgers import BRISK, payloads

pytestmark = pytest.mark.timeout(240)

DEADLINE_S = 60
ENTRY_BYTES = MIB
CLIENT = dataclasses.replace(BRISK, add_quorum_timeout_s=5.0, recovery_timeout_s=10.0)
CONFIG = BookieConfig(
    write_cache_bytes=MIB,
    sync_queue_bytes=MIB,
    checkpoint_bytes=4 * MIB,
    journal_file_bytes=2 * MIB,
    entry_log_file_bytes=4 * MIB,
    disk_check_s=0.1,
    session_timeout_s=2.0,
)
"""The reserve is then 48 MiB: of the small disk about 60 MiB can be filled."""


@dataclasses.dataclass
class Filling:
    """A cluster whose first bookie has a small disk."""

    cluster: LocalCluster
    disk: SmallDisk
    acked: dict[int, int] = dataclasses.field(default_factory=dict)
    """How many entries of each ledger every bookie has acked."""

    @property
    def small(self) -> LocalBookie:
        return self.cluster.bookies[0]

    def is_read_only(self, client: BookKeeper) -> bool:
        return {one.bookie_id: one.read_only for one in client.list_bookies()}.get(self.small.bookie_id, False)

    def is_writable(self, client: BookKeeper) -> bool:
        return {one.bookie_id: not one.read_only for one in client.list_bookies()}.get(self.small.bookie_id, False)

    def fill(self, client: BookKeeper) -> None:
        """Until the small disk takes no more. What is acked is acked by all bookies of the ensemble."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.is_read_only(client):
            assert time.monotonic() < deadline
            try:
                with client.create_ledger(3, 3, 3) as writer:
                    for entry_id in range(4):
                        writer.append(payload(writer.ledger_id, entry_id))
                        self.acked[writer.ledger_id] = entry_id + 1
            except BookKeeperError:
                wait_until(lambda: self.is_read_only(client))

    def assert_holds_all(self) -> None:
        """The small bookie itself has everything that it acked."""
        with AskedBookie(self.small) as raw:
            for ledger_id, count in self.acked.items():
                found, end = raw.read(ledger_id, 0, count - 1)
                assert end is Status.OK
                assert found == {one: payload(ledger_id, one) for one in range(count)}


def payload(ledger_id: int, entry_id: int) -> bytes:
    return (b"%d/%d " % (ledger_id, entry_id)).ljust(ENTRY_BYTES, b"x")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(params=["limited directory", "loop mount"])
def filling(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Filling]]:
    """Starts a cluster with so many bookies."""
    with ExitStack() as undo:
        undo.enter_context(mock.patch.object(local_cluster, "bookie_command", limited_bookie_command))
        disk = undo.enter_context(small_disk(request.param, tmp_path / "cluster" / "bookie-1"))

        def start(bookies: int) -> Filling:
            cluster = LocalCluster(bookies, tmp_path / "cluster", bookie_config=CONFIG)
            return Filling(undo.enter_context(cluster), disk)

        yield start


def test_a_full_bookie_is_read_only_loses_nothing_and_is_writable_after_ledgers_were_deleted(filling, capsys) -> None:
    full = filling(3)
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        writer, abandoned = client.create_ledger(3, 3, 2), client.create_ledger(3, 3, 2)
        for handle in (writer, abandoned):
            assert handle.append(b"before") == 0
        full.fill(client)
        full.assert_holds_all()
        goes_on_elsewhere(full, client, writer)
        fences_and_recovers(full, client, raw, abandoned.ledger_id)
        status = raw.administer(AdminOperation.BOOKIE_STATUS)
        assert status.figures["read_only"] == 1
        assert "too little free space" in status.detail

        kept = min(full.acked)
        for ledger_id in [one for one in full.acked if one != kept]:
            client.delete_ledger(ledger_id)
            del full.acked[ledger_id]
        collect_until(lambda: full.is_writable(client), full, capsys)
        full.assert_holds_all()
        assert raw.add(10**9, 0, b"again") is Status.OK
        assert payloads(client.open_ledger(writer.ledger_id, recover=False)) == [b"before", b"after"]


def goes_on_elsewhere(full: Filling, client: BookKeeper, writer) -> None:
    """A writer of the full bookie's takes a spare one."""
    full.cluster.add_bookie()
    assert writer.append(b"after") == 1
    wait_until(lambda: full.small.bookie_id not in client.ledger_metadata(writer.ledger_id).last_fragment.ensemble)
    writer.close()


def fences_and_recovers(full: Filling, client: BookKeeper, raw: AskedBookie, abandoned: int) -> None:
    """Protocol rule 47."""
    assert raw.add(abandoned, 1, b"normal") is Status.READ_ONLY
    assert raw.add(10**8, 0, b"repair", recovery=True) is Status.OK
    assert raw.read(abandoned, 0, 0, fence=True) == ({0: b"before"}, Status.OK)
    assert raw.add(abandoned, 1, b"behind") is Status.FENCED
    recovered = client.open_ledger(abandoned)
    assert recovered.is_closed
    assert payloads(recovered) == [b"before"]


def collect_until(is_so: Callable[[], bool], full: Filling, capsys) -> None:
    """Garbage collection by command, again and again."""
    command = ["bookie", "gc", "run", full.small.bookie_id, "--metadata", full.cluster.metadata_uri, "--json"]
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        assert main(command) == 0
        time.sleep(0.2)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bookie_id"] == full.small.bookie_id


def test_a_write_that_finds_no_space_is_unknown_and_with_space_the_storage_is_opened_anew_in_the_same_process(filling) -> None:
    """Something else takes the reserve, and only fences still need space. Situation 58."""
    full = filling(1)
    process = full.small.pid
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        assert [raw.add(1, one, payload(1, one)) for one in range(8)] == [Status.OK] * 8
        full.acked[1] = 8
        full.disk.take()
        assert raw.add(1, 8, payload(1, 8), recovery=True) is Status.READ_ONLY
        fenced = fence_until_refused(raw)
        assert raw.read(1, 7, 7) == ({7: payload(1, 7)}, Status.OK)
        assert raw.read(2, 0, 0)[1] is Status.IO_ERROR
        wait_until(lambda: full.is_read_only(client))
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1

        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        full.assert_holds_all()
        assert [raw.add(ledger_id, 0, b"late") for ledger_id in fenced] == [Status.FENCED] * len(fenced)
        assert raw.add(2, 0, b"new") is Status.OK
        full.small.kill()
        full.small.start()
        assert raw.read(2, 0, 0) == ({0: b"new"}, Status.OK)


def fence_until_refused(raw: AskedBookie) -> list[int]:
    """Ledgers whose fence was answered, until one was not: a file may have room for a few in its last block."""
    for ledger_id in range(1000, 1200):
        end = raw.read(ledger_id, 0, 0, fence=True)[1]
        if end is Status.IO_ERROR:
            return list(range(1000, ledger_id))
        assert end is Status.NO_SUCH_ENTRY
    raise AssertionError("the disk is not full")


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Callable[[int, BookieConfig], Filling]]:
    """As ``filling``, and the watermarks do not see that the first bookie's disk is full."""
    data_dir = tmp_path / "cluster" / "bookie-1" / "data"
    data_dir.parent.mkdir(parents=True)
    set_disk(data_dir, limit_bytes=12 * MIB, reported_bytes=10 * SIZE)
    with ExitStack() as undo:
        undo.enter_context(mock.patch.object(local_cluster, "bookie_command", limited_bookie_command))

        def start(bookies: int, config: BookieConfig) -> Filling:
            cluster = LocalCluster(bookies, tmp_path / "cluster", bookie_config=config)
            return Filling(undo.enter_context(cluster), LimitedDirectory(data_dir))

        yield start


def small_payload(entry_id: int) -> bytes:
    return (b"%d " % entry_id).ljust(30_000, b"x")


def test_a_disk_that_fills_faster_than_it_is_looked_at_loses_nothing_that_was_acked(hidden) -> None:
    """Small adds, through the journal and the write cache: the checkpoint may be what finds no space."""
    full = hidden(1, CONFIG)
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as asked:
        acked = 0
        while asked.add(1, acked, small_payload(acked)) is Status.OK:
            acked += 1
        wait_until(lambda: full.is_read_only(client))
        assert asked.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert asked.read(1, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK)
        assert asked.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def test_without_the_journal_what_was_acked_and_found_no_space_is_brought_back_from_the_other_bookies(hidden) -> None:
    """It was in memory alone, where it is served from until an operator starts the bookie again: others may be as full.

    Then it is unknown, never denied, until it is here again. Ref: BP-46; storage rules 11 and 12.
    """
    full = hidden(3, dataclasses.replace(CONFIG, journal_write_data=False))
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as asked:
        writer, acked = client.create_ledger(3, 3, 2), 0
        while not full.is_read_only(client):
            acked = writer.append(small_payload(acked)) + 1
        full.disk.free()
        wait_until(lambda: "start such bookies one by one" in full.small.log.read_text())
        served, status = asked.read(writer.ledger_id, 0, acked - 1)
        assert served == {one: small_payload(one) for one in range(len(served))}
        assert (len(served), status) == (acked, Status.OK) or (served and status is Status.IO_ERROR)
        full.small.stop()
        full.small.start()
        wait_until(lambda: full.is_writable(client))
        assert "starts in limbo" in full.small.log.read_text()
        while asked.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"]:
            assert asked.read(writer.ledger_id, 0, acked - 1)[1] in (Status.OK, Status.UNKNOWN)
        assert asked.read(writer.ledger_id, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK)


def test_a_bookie_that_was_killed_on_a_full_disk_starts_to_serve_reads_and_takes_adds_once_there_is_space(filling) -> None:
    """Storage rule 18. What it has, it shows; what it has not, nobody knows; its fences hold."""
    full = filling(1)
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        assert [raw.add(1, one, payload(1, one)) for one in range(8)] == [Status.OK] * 8
        assert raw.add(3, 0, b"small, in the journal alone") is Status.OK
        full.acked[1] = 8
        full.disk.take()
        for _ in range(2):
            full.small.kill()
            full.small.start()
            assert full.is_read_only(client)
            full.assert_holds_all()
            assert raw.read(3, 0, 0) == ({0: b"small, in the journal alone"}, Status.OK)
            assert raw.read(1, 8, 8)[1] is Status.IO_ERROR
            assert raw.read(2, 0, 0)[1] is Status.IO_ERROR
            assert raw.add(1, 8, payload(1, 8)) in (Status.READ_ONLY, Status.IO_ERROR)
            assert raw.add(1, 8, payload(1, 8), recovery=True) in (Status.READ_ONLY, Status.IO_ERROR)
            assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1
        process = full.small.pid
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        full.assert_holds_all()
        assert raw.add(1, 8, payload(1, 8)) is Status.OK
        assert raw.read(2, 0, 0)[1] is Status.NO_SUCH_LEDGER
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def test_a_bookie_that_reads_a_full_disk_ends_when_it_is_told_to(filling) -> None:
    full = filling(1)
    with AskedBookie(full.small) as raw:
        assert raw.add(1, 0, payload(1, 0)) is Status.OK
        full.acked[1] = 1
        full.disk.take()
        full.small.kill()
        full.small.start()
        full.small.stop()
        full.disk.free()
        full.small.start()
        full.assert_holds_all()
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["/boot", "/journal/", "/entry_log/", "generation"])
def test_a_storage_that_finds_no_space_again_while_it_is_opened_anew_serves_reads_until_there_is(hidden, place) -> None:
    """Storage rule 18. The disks took a file right before."""
    full = hidden(1, CONFIG)
    process = full.small.pid
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        acked = 0
        while raw.add(1, acked, small_payload(acked)) is Status.OK:
            acked += 1
        wait_until(lambda: full.is_read_only(client))
        set_disk(full.small.data_dir, full=[place])
        wait_until(lambda: "cannot open its storage" in full.small.log.read_text())
        wait_until(lambda: raw.read(1, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK))
        assert full.is_read_only(client)
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        assert raw.read(1, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["/boot", "/entry_log/"])
def test_a_bookie_that_opens_its_storage_anew_ends_when_it_is_told_to(hidden, place) -> None:
    """Storage rule 18: before its number is taken, and while it writes out what it replayed."""
    full = hidden(1, CONFIG)
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        acked = 0
        while raw.add(1, acked, small_payload(acked)) is Status.OK:
            acked += 1
        wait_until(lambda: full.is_read_only(client))
        set_disk(full.small.data_dir, held=place)
        wait_until(lambda: "opens its storage anew" in full.small.log.read_text())
        full.small.ask_to_end()
        full.disk.free()
        wait_until(lambda: full.small.pid is None)
        assert "Traceback" not in full.small.log.read_text()
        full.small.start()
        assert raw.read(1, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["boot", "journal", "entry_log"])
def test_a_bookie_that_starts_ends_when_it_is_told_to_and_nothing_is_lost(hidden, place) -> None:
    """Storage rule 18: while it takes its number, and while it seals its journal or its entry log."""
    full = hidden(1, CONFIG)
    full.disk.free()
    with AskedBookie(full.small) as raw:
        assert raw.add(1, 0, small_payload(0)) is Status.OK
        assert raw.add(1, 1, payload(1, 1)) is Status.OK
        full.small.kill()
        stop_during_the_start(full, place)
        full.small.start()
        assert raw.read(1, 0, 1) == ({0: small_payload(0), 1: payload(1, 1)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def test_a_start_without_the_journal_that_is_told_to_end_is_no_possible_loss(hidden) -> None:
    """It acked nothing. A start that is killed counts as a possible loss."""
    full = hidden(1, dataclasses.replace(CONFIG, journal_write_data=False))
    full.disk.free()
    with AskedBookie(full.small) as raw:
        assert raw.add(1, 0, small_payload(0)) is Status.OK
        full.small.stop()
        stop_during_the_start(full, "boot")
        full.small.start()
        assert raw.read(1, 0, 0) == ({0: small_payload(0)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def stop_during_the_start(full: Filling, place: str) -> None:
    """Start, hold the first write to ``place``, ask the process to end, and let the write go on."""
    data_dir, log = full.small.data_dir, full.small.log
    sealed = log.read_text().count("seals and syncs")
    set_disk(data_dir, held=f"/{place}")
    with ThreadPoolExecutor(1) as other:
        started = other.submit(full.small.start)
        if place == "boot":
            wait_until((data_dir / "boot.creating").exists)
        else:
            wait_until(lambda: log.read_text().count("seals and syncs") > sealed)
        full.small.ask_to_end()
        full.disk.free()
        with pytest.raises(ProcessFailedError):
            started.result(DEADLINE_S)
    assert "was told to stop while it opened its storage" in log.read_text()
    assert "Traceback" not in log.read_text()
