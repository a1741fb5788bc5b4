"""What a bookie that repairs itself gets from its cluster. Ref: docs/rules.md, storage rules 8 and 11, situation 72."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig, DigestType, LedgerOptions
from bk_spark.entries.batch import EncodedBatch, decode
from bk_spark.entries.digest import Digester, master_key
from bk_spark.errors import BookieUnavailableError, CorruptionError, MetadataConflictError
from bk_spark.local.cluster import ROOT, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import Versioned
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from bk_spark.replication.peers import ClusterPeers
from tests.cluster.live_ledgers import BRISK, killed
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes(ROOT)
LIMITS = replace(BRISK, recovery_timeout_s=2.0)
EXPECTED = [b"%d" % one for one in range(40)]


class RecordingStore(MemoryStore):
    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.calls: list[str] = []

    def sync(self, path: str) -> None:
        self.calls.append("sync")
        super().sync(path)

    def children(self, path: str) -> list[str]:
        self.calls.append("list")
        return super().children(path)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self.calls.append("read")
        return super().get_many(paths)


@pytest.fixture
def store() -> RecordingStore:
    made = RecordingStore(MemoryTree(lambda: 0))
    initialise_cluster(made, ZNODES)
    return made


@pytest.fixture
def offline(store: RecordingStore) -> Iterator[ClusterPeers]:
    with ClusterPeers(store, ZNODES, ClientConfig()) as made:
        store.calls.clear()
        yield made


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def online(wide_cluster: LocalCluster) -> Iterator[ClusterPeers]:
    with (
        connect(wide_cluster.metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as session,
        ClusterPeers(session, ZNODES, LIMITS) as made,
    ):
        yield made


def _metadata(ledger_id: int, options: LedgerOptions | None = None) -> LedgerMetadata:
    bookies = ("b1", "b2", "b3", "b4", "b5")[: (options or LedgerOptions()).ensemble_size]
    return new_ledger(ledger_id, options or LedgerOptions(), bookies, created_ms=0, creator_token=1)


def _create(store: MemoryStore, ledger_id: int) -> LedgerMetadata:
    made = _metadata(ledger_id)
    store.create(ZNODES.ledger(ledger_id), made.encode(), make_parents=True)
    return made


# --- metadata


def test_nothing_is_said_to_be_absent_before_a_sync(store: RecordingStore, offline: ClusterPeers) -> None:
    """Storage rule 8."""
    _create(store, 7)
    assert list(offline.ledger_ids()) == [7]
    assert store.calls.index("sync") < store.calls.index("list")
    store.calls.clear()
    assert offline.metadata([7, 8]) == [_metadata(7), None]
    assert store.calls[0] == "sync"


def test_a_store_that_was_emptied_and_made_anew_is_not_believed(store: RecordingStore, offline: ClusterPeers) -> None:
    """Otherwise every ledger would count as gone, and limbo as over."""
    store.set(ZNODES.instance_id, b"another", store.get(ZNODES.instance_id).version)
    with pytest.raises(MetadataConflictError):
        offline.metadata([7])
    with pytest.raises(MetadataConflictError):
        offline.ledger_ids()


def test_metadata_that_cannot_be_read_is_an_error_of_its_own_ledger_alone(store: RecordingStore, offline: ClusterPeers) -> None:
    _create(store, 7)
    store.create(ZNODES.ledger(8), b"no metadata")
    good, bad, absent = offline.metadata([7, 8, 9])
    assert good == _metadata(7)
    assert isinstance(bad, CorruptionError)
    assert absent is None


def _entries(copies: Sequence[EncodedBatch]) -> dict[int, tuple[int, bytes, bytes]]:
    """Entry id → last add confirmed, digest, payload."""
    decoded = [decode(one) for one in copies]
    columns = ((one.entry_ids, one.last_add_confirmed, one.digests.to_pylist(), one.payloads.to_pylist()) for one in decoded)
    rows = [row for column in columns for row in zip(*column, strict=True)]
    return {int(entry_id): (int(confirmed), digest, payload) for entry_id, confirmed, digest, payload in rows}


# --- from real bookies


def _closed(client: BookKeeper, bookie_id: str, options: LedgerOptions) -> LedgerMetadata | None:
    """A ledger of 40 entries, unless its ensemble lacks the bookie."""
    sizes = (options.ensemble_size, options.write_quorum, options.ack_quorum)
    with client.create_ledger(*sizes, options.digest_type, password=options.password) as writer:
        if bookie_id not in writer.metadata.last_fragment.ensemble:
            return None
        writer.append_batch(EXPECTED[:30])
        for payload in EXPECTED[30:]:
            writer.append(payload)
    return client.ledger_metadata(writer.ledger_id)


def _in_two_slots(client: BookKeeper, bookie_id: str, options: LedgerOptions) -> list[tuple[int, LedgerMetadata]]:
    """Two ledgers in whose ensembles the bookie has different slots."""
    found: dict[int, LedgerMetadata] = {}
    while len(found) < 2:
        if metadata := _closed(client, bookie_id, options):
            found[metadata.last_fragment.ensemble.index(bookie_id)] = metadata
    return list(found.items())


def _assert_what_others_give(peers: ClusterPeers, metadata: LedgerMetadata, slot: int) -> None:
    assert peers.metadata([metadata.ledger_id]) == [metadata]
    copies = list(peers.read(metadata, 0, 39, metadata.last_fragment.ensemble[slot]))
    assert {entry_id: payload for entry_id, (_, _, payload) in _entries(copies).items()} == {
        one: EXPECTED[one] for one in range(40) if metadata.slot_pattern(slot).holds(one)
    }
    assert {one.header.pattern for one in copies} == {metadata.slot_pattern(slot)}
    assert all(decode(one).matching(Digester(metadata.digest_type, metadata.password)).all() for one in copies)


def test_exactly_what_a_bookie_should_hold_comes_from_the_others_while_it_is_down_and_what_it_has_alone_is_an_error(
    wide_cluster: LocalCluster, client: BookKeeper, online: ClusterPeers
) -> None:
    down = wide_cluster.bookies[1]
    made = [
        one
        for (e, w, a), digest_type in itertools.product([(3, 3, 2), (3, 2, 2), (4, 3, 2)], DigestType)
        for one in _in_two_slots(
            client,
            down.bookie_id,
            LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a, digest_type=digest_type, password=b"secret"),
        )
    ]
    alone = None
    while alone is None:
        alone = _closed(client, down.bookie_id, LedgerOptions(ensemble_size=1, write_quorum=1, ack_quorum=1))
    with killed(down):
        for slot, metadata in made:
            _assert_what_others_give(online, metadata, slot)
        with pytest.raises(BookieUnavailableError):
            list(online.read(alone, 0, 0, down.bookie_id))


def test_the_bookie_itself_is_asked_last(client: BookKeeper, online: ClusterPeers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its damaged copy must not cost a failed try at each entry."""
    asked: list[str] = []
    bookie = online._context.bookies.bookie
    monkeypatch.setattr(online._context.bookies, "bookie", lambda bookie_id: asked.append(bookie_id) or bookie(bookie_id))
    writer = client.create_ledger()
    writer.append(b"x")
    writer.close()
    [metadata] = online.metadata([writer.ledger_id])
    assert isinstance(metadata, LedgerMetadata)
    for bookie_id in metadata.last_fragment.ensemble:
        list(online.read(metadata, 0, 0, bookie_id))
        assert bookie_id not in itertools.islice(asked, len(asked) - 1, None)
        asked.clear()


def test_a_recovered_ledger_is_closed_behind_its_last_confirmed_entry(client: BookKeeper, online: ClusterPeers) -> None:
    writer = client.create_ledger(password=b"secret")
    writer.append(b"x")
    recovered = online.recover(writer.ledger_id)
    assert (recovered.is_closed, recovered.last_entry_id) == (True, 0)
    assert online.metadata([writer.ledger_id]) == [recovered]
    assert master_key(recovered.password) == master_key(b"secret")
