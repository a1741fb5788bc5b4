"""What a bookie confirmed survives SIGKILL: real processes, real signals."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import LocalCluster
from bk_spark.wire.messages import Status
from tests.budget import IS_SOAK
from tests.cluster.bookie.asked_bookie import AskedBookie
from tests.cluster.live_ledgers import killed

ROUNDS = 20 if IS_SOAK else 4
SIZES = (20, 300, 5_000, 150_000)
"""Small adds pass through the journal, large ones go straight into the entry log."""

QUICK = ClientConfig(add_timeout_s=2.0, read_timeout_s=5.0)


@pytest.fixture(scope="module")
def one_bookie() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=1) as cluster:
        yield cluster


def _payload(number: int, size: int) -> bytes:
    return (b"%d/" % number * (size // 2))[:size]


class Load:
    """Appends entries of mixed sizes until the writer fails; knows which were confirmed."""

    def __init__(self, writer: WriteHandle, seed: int) -> None:
        self.writer = writer
        self.sizes: list[int] = []
        self.futures: list[Future[int]] = []
        self.enough = threading.Event()
        self._random = random.Random(seed)
        self._until = self._random.randrange(1, 400)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def confirmed(self) -> list[int]:
        return [number for number, future in enumerate(self.futures) if future.exception() is None]

    def _run(self) -> None:
        for number in range(20_000):
            size = self._random.choice(SIZES)
            self.sizes.append(size)
            self.futures.append(self.writer.append_async(_payload(number, size)))
            if number == self._until:
                self.futures[number].add_done_callback(lambda _: self.enough.set())
            if self.writer_failed():
                return

    def writer_failed(self) -> bool:
        return self.futures[-1].done() and self.futures[-1].exception() is not None


def test_no_confirmed_entry_is_lost_when_a_bookie_is_killed_in_the_middle_of_a_write(one_bookie: LocalCluster) -> None:
    """Every confirmed entry is read from that bookie alone after its restart: it holds the only replica. Situation 53."""
    [bookie] = one_bookie.bookies
    for seed in range(ROUNDS):
        with BookKeeper(one_bookie.metadata_uri, QUICK) as client:
            load = Load(client.create_ledger(1, 1, 1), seed)
            assert load.enough.wait(30)
            bookie.kill()
            load.thread.join(60)
            load.writer.close()
            bookie.start()
            confirmed = load.confirmed()
            assert confirmed == list(range(len(confirmed)))
            assert load.writer.last_add_confirmed == len(confirmed) - 1
            assert confirmed, "the kill came before the first confirmation"
            reader = client.open_ledger(load.writer.ledger_id)
            batches = reader.read(0, confirmed[-1])
            found = [payload for batch in batches for payload in batch.column("payload").to_pylist()]
            assert found == [_payload(number, load.sizes[number]) for number in confirmed]


def test_with_all_three_acks_asked_for_each_replica_alone_holds_every_confirmed_entry(cluster: LocalCluster) -> None:
    with BookKeeper(cluster.metadata_uri, QUICK) as client:
        load = Load(client.create_ledger(3, 3, 3), seed=1)
        assert load.enough.wait(30)
        with killed(*cluster.bookies):
            load.thread.join(60)
            load.writer.close()
        confirmed = load.confirmed()
        expected = {number: _payload(number, load.sizes[number]) for number in confirmed}
        for bookie in cluster.bookies:
            with AskedBookie(bookie) as asked:
                assert asked.read(load.writer.ledger_id, 0, confirmed[-1]) == (expected, Status.OK)
