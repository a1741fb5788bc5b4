"""A disk that is filled for real, under real processes. Ref: situation 68; docs/rules.md, protocol rule 47, storage rule 6."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from tests.cluster.bookie.asked_bookie import AskedBookie, allow_any_id
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
"""The reserve is then 48 MiB: of the small disk about 30 MiB can be filled."""

HIDDEN = 4 * MIB
"""What may be written where the watermarks do not see the end: more than a write cache and a journal."""

REAL_DISK = pytest.mark.nightly(
    held_by="tests/cluster/bookie/test_full_disk.py"
    "::test_a_full_bookie_is_read_only_loses_nothing_and_is_writable_after_ledgers_were_deleted, "  # of a limited directory
    "tests/cluster/bookie/test_full_disk.py"
    "::test_a_write_that_finds_no_space_is_unknown_and_with_space_the_storage_is_opened_anew_in_the_same_process, "
    "tests/unit/bookie/process/test_disk_watch.py"
)


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

    def run_with(self, config: BookieConfig) -> None:
        """Have the first bookie run with these settings."""
        if self.small.pid is None or self.small.config != config:
            self.small.stop()
            self.small.config = config
            self.small.start()

    def hide(self) -> None:
        """Only a little may be written, and the watermarks do not see it."""
        assert isinstance(self.disk, LimitedDirectory)
        self.disk.limit(HIDDEN, reported_bytes=10 * SIZE)

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

    def said(self) -> str:
        """The log of the first bookie."""
        return self.small.log.read_text()


def payload(ledger_id: int, entry_id: int) -> bytes:
    return (b"%d/%d " % (ledger_id, entry_id)).ljust(ENTRY_BYTES, b"x")


def small_payload(entry_id: int) -> bytes:
    return (b"%d " % entry_id).ljust(30_000, b"x")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def _limited_bookies() -> Iterator[None]:
    with mock.patch.object(local_cluster, "bookie_command", limited_bookie_command):
        yield


@contextmanager
def started(bookies: int, kind: str, directory: Path) -> Iterator[Filling]:
    cluster_dir = directory / "cluster"
    with (
        small_disk(kind, cluster_dir / "bookie-1") as disk,
        LocalCluster(bookies, cluster_dir, bookie_config=CONFIG) as cluster,
    ):
        allow_any_id(cluster)
        yield Filling(cluster, disk)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    with started(1, "limited directory", tmp_path_factory.mktemp("limited")) as filling:
        yield filling


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    with started(1, "loop mount", tmp_path_factory.mktemp("mounted")) as filling:
        yield filling


@pytest.fixture
def hidden(limited: Filling) -> Filling:
    """The only bookie of its cluster, with space, whatever the tests before did to it."""
    return ready(limited)


@pytest.fixture(params=["limited", "mounted"])
def alone(request: pytest.FixtureRequest) -> Filling:
    """As ``hidden``, also on a file system of its own."""
    return ready(request.getfixturevalue(request.param))


def ready(full: Filling) -> Filling:
    full.disk.free()
    full.run_with(CONFIG)
    full.acked.clear()
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client:
        wait_until(lambda: full.is_writable(client))
    return full


@pytest.fixture(scope="module", params=["limited directory", pytest.param("loop mount", marks=REAL_DISK)])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    with started(3, request.param, tmp_path_factory.mktemp("three")) as filling:
        yield filling


_firsts = itertools.count(10_000, 10_000)


@pytest.fixture
def own() -> int:
    """The first of ten thousand ids of ledgers that no other test uses."""
    return next(_firsts)


def test_a_full_bookie_is_read_only_loses_nothing_and_is_writable_after_ledgers_were_deleted(three, capsys) -> None:
    full = three
    full.run_with(CONFIG)
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


def test_a_write_that_finds_no_space_is_unknown_and_with_space_the_storage_is_opened_anew_in_the_same_process(
    alone, own
) -> None:
    """Something else takes the reserve, and only fences still need space. Situation 58."""
    full, process, other = alone, alone.small.pid, own + 1
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        assert [raw.add(own, one, payload(own, one)) for one in range(8)] == [Status.OK] * 8
        full.acked[own] = 8
        full.disk.take()
        assert raw.add(own, 8, payload(own, 8), recovery=True) is Status.READ_ONLY
        fenced = fence_until_refused(raw, own + 1000)
        assert raw.read(own, 7, 7) == ({7: payload(own, 7)}, Status.OK)
        assert raw.read(other, 0, 0)[1] is Status.IO_ERROR
        wait_until(lambda: full.is_read_only(client))
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1

        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        full.assert_holds_all()
        assert [raw.add(ledger_id, 0, b"late") for ledger_id in fenced] == [Status.FENCED] * len(fenced)
        assert raw.add(other, 0, b"new") is Status.OK
        full.small.kill()
        full.small.start()
        assert raw.read(other, 0, 0) == ({0: b"new"}, Status.OK)


def fence_until_refused(raw: AskedBookie, first: int) -> list[int]:
    """Ledgers whose fence was answered, until one was not: a file may have room for a few in its last block."""
    for ledger_id in range(first, first + 200):
        end = raw.read(ledger_id, 0, 0, fence=True)[1]
        if end is Status.IO_ERROR:
            return list(range(first, ledger_id))
        assert end is Status.NO_SUCH_ENTRY
    raise AssertionError("the disk is not full")


def add_until_refused(full: Filling, raw: AskedBookie, ledger_id: int) -> dict[int, bytes]:
    """What a bookie acks whose disk is full before it knows."""
    full.hide()
    acked: dict[int, bytes] = {}
    while raw.add(ledger_id, len(acked), small_payload(len(acked))) is Status.OK:
        acked[len(acked)] = small_payload(len(acked))
    assert acked
    return acked


def test_a_disk_that_fills_faster_than_it_is_looked_at_loses_nothing_that_was_acked(hidden, own) -> None:
    """Small adds, through the journal and the write cache: the checkpoint may be what finds no space."""
    full = hidden
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        acked = add_until_refused(full, raw, own)
        wait_until(lambda: full.is_read_only(client))
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert raw.read(own, 0, len(acked) - 1) == (acked, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("three", ["limited directory"], indirect=True)
def test_without_the_journal_what_was_acked_and_found_no_space_is_brought_back_from_the_other_bookies(three) -> None:
    """It was in memory alone, where it is served from until an operator starts the bookie again: others may be as full.

    Then it is unknown, never denied, until it is here again. Ref: BP-46; storage rules 11 and 12.
    """
    full, bookies = three, len(three.cluster.bookies)
    full.disk.free()
    full.run_with(dataclasses.replace(CONFIG, journal_write_data=False))
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as asked:
        full.hide()
        writer, acked = client.create_ledger(bookies, bookies, 2), 0
        while not full.is_read_only(client):
            acked = writer.append(small_payload(acked)) + 1
        full.disk.free()
        wait_until(lambda: "start such bookies one by one" in full.said())
        served, status = asked.read(writer.ledger_id, 0, acked - 1)
        assert served == {one: small_payload(one) for one in range(len(served))}
        assert (len(served), status) == (acked, Status.OK) or (served and status is Status.IO_ERROR)
        full.small.stop()
        full.small.start()
        wait_until(lambda: full.is_writable(client))
        assert "starts in limbo" in full.said()
        while asked.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"]:
            assert asked.read(writer.ledger_id, 0, acked - 1)[1] in (Status.OK, Status.UNKNOWN)
        assert asked.read(writer.ledger_id, 0, acked - 1) == ({one: small_payload(one) for one in range(acked)}, Status.OK)


def test_a_bookie_that_starts_on_a_full_disk_serves_reads_ends_when_told_to_and_takes_adds_once_there_is_space(
    alone, own
) -> None:
    """Storage rule 18. What it has, it shows; what it has not, nobody knows; its fences hold."""
    full, other, small = alone, own + 1, own + 2
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        assert [raw.add(own, one, payload(own, one)) for one in range(8)] == [Status.OK] * 8
        assert raw.add(small, 0, b"small, in the journal alone") is Status.OK
        full.acked[own] = 8
        full.disk.take()
        for end in (LocalBookie.kill, LocalBookie.kill, LocalBookie.stop):
            end(full.small)
            full.small.start()
            assert full.is_read_only(client)
            full.assert_holds_all()
            assert raw.read(small, 0, 0) == ({0: b"small, in the journal alone"}, Status.OK)
            assert raw.read(own, 8, 8)[1] is Status.IO_ERROR
            assert raw.read(other, 0, 0)[1] is Status.IO_ERROR
            assert raw.add(own, 8, payload(own, 8)) in (Status.READ_ONLY, Status.IO_ERROR)
            assert raw.add(own, 8, payload(own, 8), recovery=True) in (Status.READ_ONLY, Status.IO_ERROR)
            assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["failed"] == 1
        process = full.small.pid
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        full.assert_holds_all()
        assert raw.add(own, 8, payload(own, 8)) is Status.OK
        assert raw.read(other, 0, 0)[1] is Status.NO_SUCH_LEDGER
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["/boot", "/journal/", "/entry_log/", "generation"])
def test_a_storage_that_finds_no_space_again_while_it_is_opened_anew_serves_reads_until_there_is(hidden, own, place) -> None:
    """Storage rule 18. The disks took a file right before."""
    full, process = hidden, hidden.small.pid
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        acked = add_until_refused(full, raw, own)
        wait_until(lambda: full.is_read_only(client))
        before = full.said().count("cannot open its storage")
        set_disk(full.small.data_dir, full=[place])
        wait_until(lambda: full.said().count("cannot open its storage") > before)
        wait_until(lambda: raw.read(own, 0, len(acked) - 1) == (acked, Status.OK))
        assert not full.is_writable(client)
        wait_until(lambda: full.is_read_only(client))  # between two tries it is in no list
        full.disk.free()
        wait_until(lambda: full.is_writable(client))
        assert full.small.pid == process
        assert raw.read(own, 0, len(acked) - 1) == (acked, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["/boot", "/entry_log/"])
def test_a_bookie_that_opens_its_storage_anew_ends_when_it_is_told_to(hidden, own, place) -> None:
    """Storage rule 18: before its number is taken, and while it writes out what it replayed."""
    full = hidden
    with BookKeeper(full.cluster.metadata_uri, CLIENT) as client, AskedBookie(full.small) as raw:
        acked = add_until_refused(full, raw, own)
        wait_until(lambda: full.is_read_only(client))
        before = full.said().count("opens its storage anew")
        set_disk(full.small.data_dir, held=place)
        wait_until(lambda: full.said().count("opens its storage anew") > before)
        full.small.ask_to_end()
        full.disk.free()
        wait_until(lambda: full.small.pid is None)
        assert "Traceback" not in full.said()
        full.small.start()
        assert raw.read(own, 0, len(acked) - 1) == (acked, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


@pytest.mark.parametrize("place", ["boot", "journal", "entry_log"])
def test_a_bookie_that_starts_ends_when_it_is_told_to_and_nothing_is_lost(hidden, own, place) -> None:
    """Storage rule 18: while it takes its number, and while it seals its journal or its entry log."""
    full = hidden
    with AskedBookie(full.small) as raw:
        assert raw.add(own, 0, small_payload(0)) is Status.OK
        assert raw.add(own, 1, payload(own, 1)) is Status.OK
        full.small.kill()
        stop_during_the_start(full, place)
        full.small.start()
        assert raw.read(own, 0, 1) == ({0: small_payload(0), 1: payload(own, 1)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def test_a_start_without_the_journal_that_is_told_to_end_is_no_possible_loss(hidden, own) -> None:
    """It acked nothing. A start that is killed counts as a possible loss."""
    full = hidden
    with AskedBookie(full.small) as raw:
        assert raw.add(own, 0, small_payload(0)) is Status.OK
        full.small.stop()
        full.small.config = dataclasses.replace(CONFIG, journal_write_data=False)
        stop_during_the_start(full, "boot")
        full.small.start()
        assert raw.read(own, 0, 0) == ({0: small_payload(0)}, Status.OK)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures["limbo"] == 0


def stop_during_the_start(full: Filling, place: str) -> None:
    """Start, hold the first write to ``place``, ask the process to end, and let the write go on."""
    data_dir, told = full.small.data_dir, "was told to stop while it opened its storage"
    sealed, stopped = full.said().count("seals and syncs"), full.said().count(told)
    set_disk(data_dir, held=f"/{place}")
    with ThreadPoolExecutor(1) as other:
        started = other.submit(full.small.start)
        if place == "boot":
            wait_until((data_dir / "boot.creating").exists)
        else:
            wait_until(lambda: full.said().count("seals and syncs") > sealed)
        full.small.ask_to_end()
        full.disk.free()
        with pytest.raises(ProcessFailedError):
            started.result(DEADLINE_S)
    assert full.said().count(told) > stopped
    assert "Traceback" not in full.said()
