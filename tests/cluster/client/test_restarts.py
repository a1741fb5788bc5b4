"""All real bookies of a cluster restart: at once, for ledgers in several states that are made once, or one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.local.cluster import LocalBookie, LocalCluster
from tests.cluster.live_ledgers import (
    BRISK,
    DEADLINE_S,
    bookies_of,
    eventually_last_add_confirmed,
    killed,
    payloads,
    refused,
    start,
)


@dataclass(frozen=True)
class Restarted:
    """Writers that were there before all bookies of their cluster went and came back."""

    client: BookKeeper
    """Which reads and recovers; the writers are another one's."""

    forced: WriteHandle
    """Of a hundred entries with deferred sync."""

    fenced: WriteHandle
    """Of one entry; its ledger was recovered by ``client``."""

    told: WriteHandle
    """Idle after two entries; its bookies know that both are confirmed."""

    untold: WriteHandle
    """Idle after two entries; its bookies were gone before they could be told, unless they took their time."""


def _before(client: BookKeeper, owner: BookKeeper) -> Restarted:
    forced = owner.create_ledger(deferred_sync=True)
    forced.append_batch([b"%d" % i for i in range(100)])
    assert forced.force() == 99
    fenced = owner.create_ledger()
    fenced.append(b"x")
    assert client.open_ledger(fenced.ledger_id).last_add_confirmed == 0
    told = owner.create_ledger()
    told.append_batch([b"a", b"b"])
    reader = client.open_ledger(told.ledger_id, recover=False)
    eventually_last_add_confirmed(reader, 1)
    reader.wait_for_last_add_confirmed(1, BRISK.explicit_lac_s)  # all bookies were told; the first one's word was enough
    untold = owner.create_ledger()
    untold.append_batch([b"a", b"b"])
    return Restarted(client, forced, fenced, told, untold)


@pytest.fixture(scope="module", params=[LocalBookie.kill, LocalBookie.stop], ids=["kill", "stop"])
def restarted(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Restarted]:
    with BookKeeper(cluster.metadata_uri, BRISK) as client, BookKeeper(cluster.metadata_uri, BRISK) as owner:
        made = _before(client, owner)
        for bookie in cluster.bookies:
            request.param(bookie)
        start(*cluster.bookies)
        yield made


def test_an_explicit_last_add_confirmed_survives_the_restart_of_all_bookies(restarted: Restarted) -> None:
    """Ref: situation 23."""
    assert restarted.client.open_ledger(restarted.told.ledger_id, recover=False).last_add_confirmed == 1


def test_an_idle_writers_last_entry_becomes_visible_though_all_bookies_restart_before_they_are_told(
    restarted: Restarted,
) -> None:
    """Protocol rule 62: bookies are down when the pause ends."""
    reader = restarted.client.open_ledger(restarted.untold.ledger_id, recover=False)
    eventually_last_add_confirmed(reader, 1)
    assert payloads(reader) == [b"a", b"b"]


def test_a_fenced_writer_stays_fenced_when_all_bookies_were_restarted(restarted: Restarted) -> None:
    """Ref: situation 27."""
    assert refused(restarted.fenced)
    assert restarted.client.ledger_metadata(restarted.fenced.ledger_id).last_entry_id == 0


def test_forced_entries_survive_the_restart_of_all_bookies(restarted: Restarted) -> None:
    reader = restarted.client.open_ledger(restarted.forced.ledger_id)
    assert reader.last_add_confirmed >= 99
    assert payloads(reader, 0, 99) == [b"%d" % i for i in range(100)]


class Adding(threading.Thread):
    """A writer that goes on until it is stopped, and what it was told to be confirmed."""

    def __init__(self, writer: WriteHandle) -> None:
        super().__init__()
        self.writer = writer
        self.confirmed: list[bytes] = []
        self._stopped, self._progress = threading.Event(), threading.Condition()

    def run(self) -> None:
        while not self._stopped.is_set():
            with self._progress:
                self._progress.notify_all()
            first = len(self.confirmed)
            batch = [b"%d" % (first + i) for i in range(20)]
            assert self.writer.append_batch(batch) == (first, first + 19)
            self.confirmed.extend(batch)

    def await_progress(self) -> None:
        wanted = len(self.confirmed) + 200
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.confirmed) >= wanted, DEADLINE_S)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Recovering(threading.Thread):
    """One ledger after the other is written by ``owner`` and recovered by ``client``."""

    EXPECTED = tuple(b"%d" % i for i in range(100))

    def __init__(self, client: BookKeeper, owner: BookKeeper) -> None:
        super().__init__()
        self.found: list[list[bytes]] = []
        self._client, self._owner, self._stopped = client, owner, threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            writer = self._owner.create_ledger()
            writer.append_batch(list(self.EXPECTED))
            self.found.append(payloads(self._client.open_ledger(writer.ledger_id)))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _restart_each(cluster: LocalCluster, adding: Adding) -> None:
    """Kill one bookie after the other, each while the writer's ensemble has it; it is back before the next one."""
    left = set(cluster.bookies)
    while left:
        victim = next(one for one in bookies_of(cluster, adding.writer.metadata) if one in left)
        left.remove(victim)
        with killed(victim):
            adding.await_progress()


def test_over_a_rolling_restart_a_writer_confirms_on_a_reader_finds_exactly_that_and_other_ledgers_are_recovered(
    wide_cluster: LocalCluster,
) -> None:
    """Ref: situation 37."""
    uri = wide_cluster.metadata_uri
    with BookKeeper(uri, BRISK) as client, BookKeeper(uri, BRISK) as owner:
        adding, recovering = Adding(client.create_ledger()), Recovering(client, owner)
        adding.start()
        recovering.start()
        try:
            _restart_each(wide_cluster, adding)
        finally:
            adding.stop()
            recovering.stop()
        adding.writer.close()
        reader = client.open_ledger(adding.writer.ledger_id)
        assert payloads(reader) == adding.confirmed
        assert len(reader.metadata.fragments) >= 4
    assert len(recovering.found) > len(wide_cluster.bookies)
    assert all(tuple(one) == Recovering.EXPECTED for one in recovering.found)
