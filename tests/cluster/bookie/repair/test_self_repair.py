"""Real bookies that lost a disk, or whose disk changed what it keeps, and get it back from the others.

Ref: BP-46; docs/rules.md, storage rules 2 and 11 to 13, situations 61, 70 and 72.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.raw_bookie import DEADLINE_S, LARGE, SMALL, await_end_of_limbo, payload, read
from tests.cluster.live_ledgers import BRISK

COUNT = 60
EXPECTED = {one: payload(one, LARGE if one % 10 == 0 else SMALL) for one in range(COUNT)}


@pytest.fixture
def own() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as cluster:
        yield cluster


def _closed_ledger(client: BookKeeper) -> int:
    with client.create_ledger(3, 3, 2) as writer:
        for one in range(COUNT):
            writer.append(EXPECTED[one])
        return writer.ledger_id


@pytest.mark.timeout(120)
def test_a_bookie_that_lost_its_only_disk_gets_everything_back(own: LocalCluster) -> None:
    """Closed ledgers and those whose writer is gone; what it once promised is kept although it forgot it."""
    with BookKeeper(own.metadata_uri, BRISK) as client:
        closed = _closed_ledger(client)
        writer = client.create_ledger(3, 3, 2)
        for one in range(COUNT):
            writer.append(EXPECTED[one])
    lost = own.bookies[0]
    lost.stop()
    shutil.rmtree(lost.data_dir)
    lost.data_dir.mkdir()
    assert main(["cookie", "fix", lost.bookie_id, "--data-dir", str(lost.data_dir), "--metadata", own.metadata_uri]) == 0
    lost.start()
    for ledger_id in (closed, writer.ledger_id):
        await_end_of_limbo(lost, ledger_id, COUNT - 1)
        assert read(lost, ledger_id, 0, COUNT - 1)[0] == EXPECTED


@pytest.mark.timeout(120)
def test_a_scrub_finds_what_rotted_and_repairs_it(own: LocalCluster) -> None:
    with BookKeeper(own.metadata_uri, BRISK) as client:
        ledger_id = _closed_ledger(client)
        rotten = own.bookies[0]
        rotten.stop()
        assert _flip_a_byte_of_each_payload(rotten) > 0
        rotten.start()
        found, end = read(rotten, ledger_id, 0, COUNT - 1)
        assert end is Status.DAMAGED
        assert found.items() < EXPECTED.items()
        assert client.administer_bookie(rotten.bookie_id, AdminOperation.SCRUB).status is Status.OK
        deadline = time.monotonic() + DEADLINE_S
        while read(rotten, ledger_id, 0, COUNT - 1)[0] != EXPECTED:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.timeout(120)
def test_what_rotted_is_repaired_once_a_client_reads_it(own: LocalCluster) -> None:
    """Nobody asks for a scrub, and the next one by itself is days away."""
    with BookKeeper(own.metadata_uri, BRISK) as client:
        ledger_id = _closed_ledger(client)
        rotten = own.bookies[0]
        rotten.stop()
        assert _flip_a_byte_of_each_payload(rotten) > 0
        rotten.start()
        assert read(rotten, ledger_id, 0, COUNT - 1)[1] is Status.DAMAGED
        deadline = time.monotonic() + DEADLINE_S
        while read(rotten, ledger_id, 0, COUNT - 1)[0] != EXPECTED:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.administer_bookie(rotten.bookie_id, AdminOperation.BOOKIE_STATUS).figures["scrub_runs"] == 0


def _flip_a_byte_of_each_payload(bookie: LocalBookie) -> int:
    """In every large entry that this bookie keeps; gives their number."""
    flipped = 0
    for path in (bookie.data_dir / "entry_log").iterdir():
        content = bytearray(path.read_bytes())
        for one in range(0, COUNT, 10):
            at = content.find(EXPECTED[one])
            if at >= 0:
                content[at + LARGE // 2] ^= 1
                flipped += 1
        path.write_bytes(content)
    return flipped
