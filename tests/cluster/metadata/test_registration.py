"""The root of a cluster and its bookies' registrations, on a real ZooKeeper."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.registration import (
    APACHE_PROTOCOL,
    PROTOCOL,
    ApachePort,
    BookieAddress,
    RegisteredBookie,
    check_layout,
    initialise_cluster,
    instance_id,
    intended_root,
    list_bookies,
    lookup,
    open_root,
    register,
    sync_same_cluster,
    unregister,
    watch_bookies,
)
from bk_spark.metadata.store import MetadataStore, Versioned
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.proto.ledger_metadata_pb2 import BookieServiceInfoFormat

A = BookieAddress("host:1-aa", "host", 1)
B = BookieAddress("host:2-bb", "host", 2)


@pytest.fixture
def cluster_root(store: ZooKeeperStore, znodes: Znodes) -> Znodes:
    initialise_cluster(store, znodes)
    return znodes


def other_session(store: MetadataStore) -> ZooKeeperStore:
    return connect(store.uri, connect_timeout_s=10.0, session_timeout_s=10.0)


def test_initialising_makes_every_family_with_apaches_values(store: ZooKeeperStore, znodes: Znodes) -> None:
    initialise_cluster(store, znodes)
    assert store.children(znodes.root) == ["INSTANCEID", "LAYOUT", "available", "bk_spark", "cookies", "idgen"]
    assert store.get(znodes.layout_path).value == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert uuid.UUID(instance_id(store, znodes))
    assert store.children(znodes.available) == ["readonly"]
    assert store.children(f"{znodes.root}/bk_spark/logs") == ["data", "names"]


def test_initialising_again_keeps_the_instance_id(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    before = instance_id(store, cluster_root)
    initialise_cluster(store, cluster_root)
    assert instance_id(store, cluster_root) == before


def test_many_may_initialise_at_once(store: ZooKeeperStore, znodes: Znodes) -> None:
    seen: list[str] = []

    def initialise() -> None:
        with other_session(store) as mine:
            initialise_cluster(mine, znodes)
            seen.append(instance_id(mine, znodes))

    threads = [threading.Thread(target=initialise) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert len(set(seen)) == 1


def test_a_root_that_is_not_initialised_is_refused_with_the_command(store: ZooKeeperStore, znodes: Znodes) -> None:
    for call in (
        lambda: check_layout(store, znodes),
        lambda: instance_id(store, znodes),
        lambda: list_bookies(store, znodes),
    ):
        with pytest.raises(ConfigError, match=f"run 'bk-spark cluster init --metadata {store.uri}'"):
            call()


def test_a_bookie_that_registers_where_its_cluster_is_gone_is_not_told_to_initialise_it(
    store: ZooKeeperStore, znodes: Znodes
) -> None:
    with pytest.raises(ConfigError, match="it has lost the cluster of this bookie: restore the metadata store, and do not"):
        register(store, znodes, A)


def test_nothing_is_concluded_from_a_store_that_has_lost_the_cluster(store: ZooKeeperStore, znodes: Znodes) -> None:
    """Storage rule 8."""
    told = "it has lost the cluster with instance id abc, nothing is concluded from it: restore the metadata store"
    with pytest.raises(MetadataConflictError, match=told):
        sync_same_cluster(store, znodes, "abc")


@pytest.mark.parametrize("layout", LedgerLayout)
def test_a_cluster_is_opened_with_the_layout_that_it_was_initialised_with(
    store: ZooKeeperStore, znodes: Znodes, layout: LedgerLayout
) -> None:
    initialise_cluster(store, Znodes(znodes.root, layout))
    assert store.get(f"{znodes.root}/LAYOUT").value == layout.stored
    assert open_root(store, znodes.root) == Znodes(znodes.root, layout)
    initialise_cluster(store, intended_root(store, znodes.root, None))
    assert open_root(store, znodes.root).layout is layout


def test_a_root_without_a_cluster_gets_the_layout_that_is_asked_for_or_the_default(
    store: ZooKeeperStore, znodes: Znodes
) -> None:
    assert intended_root(store, znodes.root, None).layout is LedgerLayout.HIERARCHICAL
    assert intended_root(store, znodes.root, LedgerLayout.FLAT).layout is LedgerLayout.FLAT


def test_another_ledger_layout_is_refused_and_kept(store: ZooKeeperStore, znodes: Znodes) -> None:
    initialise_cluster(store, Znodes(znodes.root, LedgerLayout.FLAT))
    for call in (check_layout, initialise_cluster):
        with pytest.raises(ConfigError, match=r"FlatLedgerManagerFactory.*not hierarchical.*bk-spark cluster init"):
            call(store, znodes)
    assert open_root(store, znodes.root).layout is LedgerLayout.FLAT


def test_a_layout_that_is_not_known_is_refused_and_kept(store: ZooKeeperStore, znodes: Znodes) -> None:
    value = b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1"
    store.create(znodes.layout_path, value, make_parents=True)
    for call in (check_layout, initialise_cluster, lambda store, znodes: intended_root(store, znodes.root, None)):
        with pytest.raises(ConfigError, match=r"LegacyHierarchical.*knows .*flat, hierarchical, long-hierarchical"):
            call(store, znodes)
    assert store.get(znodes.layout_path).value == value


def test_who_watches_the_bookies_hears_of_each_that_comes_goes_or_changes_its_mode(
    store: ZooKeeperStore, cluster_root: Znodes
) -> None:
    changed = threading.Semaphore(0)
    watch_bookies(store, cluster_root, changed.release)
    with other_session(store) as bookie:
        register(bookie, cluster_root, A, read_only=True)
        assert changed.acquire(timeout=10)
        register(bookie, cluster_root, A)
        while list_bookies(store, cluster_root) != [RegisteredBookie(A.bookie_id, A, read_only=False)]:
            assert changed.acquire(timeout=10)
    while list_bookies(store, cluster_root):
        assert changed.acquire(timeout=10)


def test_a_registration_goes_with_its_session(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    with other_session(store) as bookie:
        register(bookie, cluster_root, A)
        assert lookup(store, cluster_root, A.bookie_id) == A
    store.sync(cluster_root.root)
    assert lookup(store, cluster_root, A.bookie_id) is None
    assert list_bookies(store, cluster_root) == []


def test_a_registration_is_apaches_protobuf_with_our_endpoint(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    register(store, cluster_root, A)
    info = BookieServiceInfoFormat.FromString(store.get(f"{cluster_root.root}/available/{A.bookie_id}").value)
    assert [(e.protocol, e.host, e.port) for e in info.endpoints] == [("bk_spark-grpc", "host", 1)]


def test_a_registration_names_the_bookies_rack(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    racked = BookieAddress(A.bookie_id, A.host, A.port, "/zone-1/rack-2")
    register(store, cluster_root, racked)
    register(store, cluster_root, B)
    assert [bookie.rack for bookie in list_bookies(store, cluster_root)] == ["/zone-1/rack-2", "/default-rack"]
    info = BookieServiceInfoFormat.FromString(store.get(cluster_root.registration(A.bookie_id)).value)
    assert dict(info.properties) == {"rack": "/zone-1/rack-2"}


def test_a_registration_tells_where_the_bookies_metrics_are(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    for number, http in enumerate(("10.0.0.7:8000", "[::1]:8000", None)):
        register(store, cluster_root, BookieAddress(f"bookie-{number}", A.host, number + 1, http=http))
    found = list_bookies(store, cluster_root)
    assert [bookie.http for bookie in found] == ["10.0.0.7:8000", "[::1]:8000", None]
    assert [bookie.address.port for bookie in found] == [1, 2, 3]
    info = BookieServiceInfoFormat.FromString(store.get(cluster_root.registration("bookie-0")).value)
    assert [(one.id, one.protocol, one.host, one.port) for one in info.endpoints] == [
        ("bookie", PROTOCOL, A.host, 1),
        ("http", "http", "10.0.0.7", 8000),
    ]


def test_a_registration_without_a_rack_is_in_the_default_rack(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    endpoint = BookieServiceInfoFormat.Endpoint(id="bookie", host="host", port=1, protocol="bk_spark-grpc")
    info = BookieServiceInfoFormat(endpoints=[endpoint])
    store.create(cluster_root.registration(A.bookie_id), info.SerializeToString())
    assert lookup(store, cluster_root, A.bookie_id) == BookieAddress(A.bookie_id, "host", 1, "/default-rack")


def test_a_bookie_that_was_moved_to_another_rack_replaces_what_its_dead_process_left(
    store: ZooKeeperStore, cluster_root: Znodes
) -> None:
    moved = BookieAddress(A.bookie_id, A.host, A.port, "/rack-2")
    with other_session(store) as dead:
        register(dead, cluster_root, A)
        register(store, cluster_root, moved)
    store.sync(cluster_root.root)
    assert lookup(store, cluster_root, A.bookie_id) == moved


def test_bookies_are_listed_by_id_with_read_only_ones_marked(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    register(store, cluster_root, B, read_only=True)
    register(store, cluster_root, A)
    listed = [(bookie.bookie_id, bookie.address, bookie.read_only) for bookie in list_bookies(store, cluster_root)]
    assert listed == [(A.bookie_id, A, False), (B.bookie_id, B, True)]
    assert lookup(store, cluster_root, B.bookie_id) == B


def test_a_bookie_is_either_writable_or_read_only(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    for read_only in (False, True, False):
        register(store, cluster_root, A, read_only=read_only)
        assert [bookie.read_only for bookie in list_bookies(store, cluster_root)] == [read_only]
    assert store.children(cluster_root.read_only) == []


def test_what_a_dead_process_left_is_replaced_and_does_not_go_with_its_session(
    store: ZooKeeperStore, cluster_root: Znodes
) -> None:
    with other_session(store) as dead:
        register(dead, cluster_root, A)
        register(store, cluster_root, A)
    store.sync(cluster_root.root)
    assert lookup(store, cluster_root, A.bookie_id) == A


def test_registering_again_in_the_same_session_is_fine(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    register(store, cluster_root, A)
    register(store, cluster_root, A)
    assert lookup(store, cluster_root, A.bookie_id) == A


def test_a_registration_with_another_address_is_waited_for(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    dying = other_session(store)
    register(dying, cluster_root, BookieAddress(A.bookie_id, "elsewhere", 9))
    pauses: list[int] = []

    def pause() -> bool:
        pauses.append(1)
        if len(pauses) == 3:
            dying.close()
        return True

    register(store, cluster_root, A, pause=pause)
    assert lookup(store, cluster_root, A.bookie_id) == A
    assert len(pauses) == 3


def test_a_registration_with_another_address_that_stays_is_refused_by_name(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    with other_session(store) as alive:
        register(alive, cluster_root, BookieAddress(A.bookie_id, "elsewhere", 9))
        with pytest.raises(MetadataConflictError, match=r"host:1-aa .*at elsewhere:9 holds it"):
            register(store, cluster_root, A)
        assert lookup(store, cluster_root, A.bookie_id) == BookieAddress(A.bookie_id, "elsewhere", 9)


def test_unregistering_removes_both_kinds_and_needs_none(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    register(store, cluster_root, A)
    unregister(store, cluster_root, A.bookie_id)
    unregister(store, cluster_root, A.bookie_id)
    assert list_bookies(store, cluster_root) == []


def service_info(**protocols: tuple[str, int]) -> bytes:
    """As Apache's bookies register; ``_`` stands for ``-`` in the name of a protocol."""
    info = BookieServiceInfoFormat()
    for name, (host, port) in protocols.items():
        info.endpoints.add(id=name, host=host, port=port, protocol=name.replace("_", "-"))
    return info.SerializeToString()


@pytest.mark.parametrize(
    ("bookie_id", "value", "address"),
    [
        ("java:3181", b"", BookieAddress("java:3181", "java", 3181, protocol=APACHE_PROTOCOL)),
        ("x", service_info(bookie_rpc=("a", 1)), BookieAddress("x", "a", 1, protocol=APACHE_PROTOCOL)),
        (
            "x",
            service_info(http=("a", 8), bookie_rpc=("a", 1)),
            BookieAddress("x", "a", 1, http="a:8", protocol=APACHE_PROTOCOL),
        ),
        ("no address", b"", None),
        ("java:x", b"", None),
        ("x", service_info(http=("a", 8)), None),
    ],
)
def test_what_a_bookie_speaks_follows_from_its_registration(
    store: ZooKeeperStore, cluster_root: Znodes, bookie_id: str, value: bytes, address: BookieAddress | None
) -> None:
    store.create(cluster_root.registration(bookie_id), value)
    assert lookup(store, cluster_root, bookie_id) == address
    listed = list_bookies(store, cluster_root)
    assert [(bookie.address, bookie.is_apache) for bookie in listed] == ([(address, True)] if address else [])


def test_a_bookie_that_speaks_both_is_asked_over_our_wire(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    info = BookieServiceInfoFormat.FromString(service_info(bookie_rpc=("a", 1)))
    info.endpoints.add(id="ours", host="a", port=2, protocol=PROTOCOL)
    store.create(cluster_root.registration("x"), info.SerializeToString())
    assert lookup(store, cluster_root, "x") == BookieAddress("x", "a", 2, apache=ApachePort(1))


@pytest.mark.parametrize("asks_sasl", [True, False])
@pytest.mark.parametrize("has_tls", [True, False])
def test_a_registration_says_how_clients_begin_at_the_port_for_apaches(
    store: ZooKeeperStore, cluster_root: Znodes, has_tls: bool, asks_sasl: bool
) -> None:
    address = BookieAddress("x", "a", 2, apache=ApachePort(1, has_tls, asks_sasl))
    register(store, cluster_root, address)
    assert lookup(store, cluster_root, "x") == address


def test_a_damaged_registration_is_damage_and_not_absence(store: ZooKeeperStore, cluster_root: Znodes) -> None:
    store.create(cluster_root.registration("x"), b"\xff\xff")
    with pytest.raises(CorruptionError, match="available/x is damaged"):
        lookup(store, cluster_root, "x")


@pytest.mark.parametrize("becomes_read_only", [True, False])
@pytest.mark.parametrize("before", range(5))
def test_a_bookie_that_changes_its_mode_between_any_two_reads_is_listed_and_found(
    store: ZooKeeperStore, cluster_root: Znodes, before: int, becomes_read_only: bool
) -> None:
    def changing() -> MetadataStore:
        register(store, cluster_root, A, not becomes_read_only)
        return cast(MetadataStore, ChangingStore(store, before, lambda: register(store, cluster_root, A, becomes_read_only)))

    assert [one.address for one in list_bookies(changing(), cluster_root)] == [A]
    assert lookup(changing(), cluster_root, A.bookie_id) == A


class ChangingStore:
    """Something happens in the store before one of its reads, counted from 0."""

    def __init__(self, store: ZooKeeperStore, before: int, change: Callable[[], None]) -> None:
        self._store = store
        self._left = before
        self._change = change

    def _count(self) -> None:
        if self._left == 0:
            self._change()
        self._left -= 1

    def children(self, path: str) -> list[str]:
        self._count()
        return self._store.children(path)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        found = []
        for path in paths:
            self._count()
            found += self._store.get_many([path])
        return found
