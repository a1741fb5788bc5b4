"""Real bookies that lost a disk, or whose disk changed what it keeps, and get it back from the others.

Ref: BP-46; docs/rules.md, storage rules 2 and 11 to 13, situations 61, 70 and 72.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.raw_bookie import DEADLINE_S, LARGE, SMALL, await_end_of_limbo, payload, read
from tests.cluster.live_ledgers import BRISK

COUNT = 60


def expected(ledger_id: int) -> dict[int, bytes]:
    """Different ones in each ledger."""
    return {one: payload(1000 * ledger_id + one, LARGE if one % 10 == 0 else SMALL) for one in range(COUNT)}


@pytest.fixture(scope="module")
def own() -> Iterator[LocalCluster]:
    """Each test leaves all three running, and whole."""
    with LocalCluster(bookies=3) as cluster:
        yield cluster


def _written(client: BookKeeper) -> WriteHandle:
    """Each entry in a batch of its own."""
    writer = client.create_ledger(3, 3, 2)
    for entry in expected(writer.ledger_id).values():
        writer.append(entry)
    return writer


def _closed_ledger(client: BookKeeper) -> int:
    with _written(client) as writer:
        return writer.ledger_id


@pytest.mark.timeout(120)
def test_a_bookie_that_lost_its_only_disk_gets_everything_back(own: LocalCluster) -> None:
    """Closed ledgers and those whose writer is gone; what it once promised is kept although it forgot it."""
    with BookKeeper(own.metadata_uri, BRISK) as client:
        closed, left = _closed_ledger(client), _written(client).ledger_id
    lost = own.bookies[0]
    lost.stop()
    shutil.rmtree(lost.data_dir)
    lost.data_dir.mkdir()
    assert main(["cookie", "fix", lost.bookie_id, "--data-dir", str(lost.data_dir), "--metadata", own.metadata_uri]) == 0
    lost.start()
    for ledger_id in (closed, left):
        await_end_of_limbo(lost, ledger_id, COUNT - 1)
        assert read(lost, ledger_id, 0, COUNT - 1)[0] == expected(ledger_id)


@pytest.mark.timeout(120)
def test_a_scrub_finds_what_rotted_and_repairs_it(own: LocalCluster) -> None:
    """Before anybody reads it."""
    with BookKeeper(own.metadata_uri, BRISK) as client:
        ledger_id, rotten = _closed_ledger(client), own.bookies[0]
        _rot(rotten, ledger_id)
        assert client.administer_bookie(rotten.bookie_id, AdminOperation.SCRUB).status is Status.OK
        _until(lambda: _status(client, rotten)["scrub_runs"] == 1)
        _until(lambda: _status(client, rotten)["scrub_damaged"] == 0)
        assert read(rotten, ledger_id, 0, COUNT - 1) == (expected(ledger_id), Status.OK)


@pytest.mark.timeout(120)
def test_what_rotted_is_repaired_once_a_client_reads_it(own: LocalCluster) -> None:
    """Nobody asks for a scrub, and the next one by itself is days away."""
    with BookKeeper(own.metadata_uri, BRISK) as client:
        ledger_id, rotten = _closed_ledger(client), own.bookies[0]
        _rot(rotten, ledger_id)
        found, end = read(rotten, ledger_id, 0, COUNT - 1)
        assert end is Status.DAMAGED
        assert found.items() < expected(ledger_id).items()
        _until(lambda: read(rotten, ledger_id, 0, COUNT - 1)[0] == expected(ledger_id))
        assert _status(client, rotten)["scrub_runs"] == 0


def _status(client: BookKeeper, bookie: LocalBookie) -> dict[str, int]:
    return client.administer_bookie(bookie.bookie_id, AdminOperation.BOOKIE_STATUS).figures


def _rot(bookie: LocalBookie, ledger_id: int) -> None:
    """Flip a byte of every large entry of a ledger that this bookie keeps."""
    _until(lambda: read(bookie, ledger_id, 0, COUNT - 1)[0] == expected(ledger_id))  # two of three confirmed it
    bookie.stop()
    large = [expected(ledger_id)[one] for one in range(0, COUNT, 10)]
    assert all(any(_flipped(path, entry) for path in (bookie.data_dir / "entry_log").iterdir()) for entry in large)
    bookie.start()


def _flipped(path: Path, entry: bytes) -> bool:
    with path.open("r+b") as file:
        at = file.read().find(entry)
        if at >= 0:
            file.seek(at + len(entry) // 2)
            file.write(bytes([entry[len(entry) // 2] ^ 1]))
    return at >= 0


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
