"""What ZooKeeper adds to the contract: connections that do not come about, break, or outlive their session."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata import zookeeper_session
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect

BUSY = 5
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def own_server() -> Iterator[LocalCluster]:
    """A ZooKeeper that these tests may stop and suspend."""
    with LocalCluster(bookies=0) as cluster:
        yield cluster


@pytest.fixture
def fragile(own_server: LocalCluster) -> Iterator[ZooKeeperStore]:
    """Its session is long: a client drops the connection to a suspended server after a third of it, and a busy machine may
    need seconds until a request is under way."""
    with connect(own_server.metadata_uri, connect_timeout_s=10.0, session_timeout_s=60.0) as store:
        yield store


@pytest.mark.parametrize(
    ("uri", "hosts", "root"),
    [
        ("zk://localhost:2181/ledgers", "localhost:2181", "/ledgers"),
        ("zk://a:1,b-2.example.org:65535/x/y", "a:1,b-2.example.org:65535", "/x/y"),
        ("zk://[::1]:2181/ledgers", "[::1]:2181", "/ledgers"),
    ],
)
def test_a_uri_is_hosts_and_root(uri: str, hosts: str, root: str) -> None:
    assert parse_uri(uri) == (hosts, root)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "ledgers",
        "http://a:1/ledgers",
        "zk+hierarchical://a:1/ledgers",
        "zk://a:1",
        "zk://a:1/",
        "zk://a:1/ledgers/",
        "zk://a:1//ledgers",
        "zk://a/ledgers",
        "zk://:1/ledgers",
        "zk://a:0/ledgers",
        "zk://a:65536/ledgers",
        "zk://a:1,/ledgers",
        "zk://a:1;b:2/ledgers",
        "zk://a:1/../ledgers",
        "zk://a:1/zookeeper",
    ],
)
def test_a_malformed_uri_is_refused_with_the_right_form(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"zk://host:port\[,host:port\]/root") as caught:
        parse_uri(uri)
    assert caught.value.value == uri


def test_where_nothing_listens_connecting_ends_in_time_with_the_uri(free_port: int) -> None:
    uri = f"zk://127.0.0.1:{free_port}/ledgers"
    with within(0.4, 2.0), pytest.raises(MetadataUnavailableError, match=f"{uri} .*that ZooKeeper runs there"):
        connect(uri, connect_timeout_s=0.5, session_timeout_s=10.0)
    assert threads_of_kazoo() == []


def test_where_something_listens_and_never_answers_connecting_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        uri = f"zk://127.0.0.1:{mute.getsockname()[1]}/ledgers"
        with within(0.4, 2.0), pytest.raises(MetadataUnavailableError, match=uri):
            connect(uri, connect_timeout_s=0.5, session_timeout_s=30.0)
    assert threads_of_kazoo() == []


def test_a_server_that_forgets_the_first_connection_is_asked_again(
    zookeeper_server: LocalZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_session, "_HANDSHAKE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(DEADLINE_S)
        uri = f"zk://127.0.0.1:{door.getsockname()[1]}/ledgers"
        with ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(connect, uri, connect_timeout_s=10.0, session_timeout_s=10.0)
            forgotten, _ = door.accept()
            second, _ = door.accept()
            server = socket.create_connection(("127.0.0.1", zookeeper_server.port))
            threads = [threading.Thread(target=forward, args=pair) for pair in ((second, server), (server, second))]
            for thread in threads:
                thread.start()
            with connecting.result(DEADLINE_S) as store:
                assert "zookeeper" in store.children("/")
            for thread in threads:
                thread.join(DEADLINE_S)
            for connection in (forgotten, second, server):
                connection.close()


def test_a_host_without_an_address_is_unavailable_in_time() -> None:
    with within(0.0, 8.0), pytest.raises(MetadataUnavailableError):
        connect("zk://no-such-host.invalid:2181/ledgers", connect_timeout_s=0.5, session_timeout_s=10.0)


def test_the_second_host_is_used_when_the_first_is_down(metadata_uri: str, free_port: int) -> None:
    uri = metadata_uri.replace("zk://", f"zk://127.0.0.1:{free_port},")
    with connect(uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        assert "zookeeper" in store.children("/")


def test_a_session_is_quick_and_leaves_no_thread(metadata_uri: str) -> None:
    with within(0.0, 2.0):
        for _ in range(10):
            with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
                store.children("/")
    assert threads_of_kazoo() == []


def test_a_closed_store_says_so_at_once_and_closes_twice(metadata_uri: str) -> None:
    store = connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0)
    store.close()
    store.close()
    for call in (lambda: store.get("/"), lambda: store.create("/x"), lambda: store.get_many(["/"])):
        with within(0.0, 1.0), pytest.raises(MetadataUnavailableError, match="this session is closed"):
            call()


def test_operations_without_a_server_end_in_time_as_unknown(own_server: LocalCluster) -> None:
    with connect(own_server.metadata_uri, connect_timeout_s=10.0, session_timeout_s=1.0) as store:
        own_server.zookeeper.stop()
        try:
            for call in (lambda: store.get("/"), lambda: store.create("/never"), lambda: store.get_many(["/"])):
                with within(0.0, 4.0), pytest.raises(MetadataUnavailableError, match=own_server.metadata_uri):
                    call()
        finally:
            own_server.zookeeper.start()
        until(lambda: answers(store))
        assert "never" not in store.children("/")


def test_operations_on_a_server_that_hangs_end_in_time_and_closing_does_too(own_server: LocalCluster) -> None:
    store = connect(own_server.metadata_uri, connect_timeout_s=10.0, session_timeout_s=1.0)
    own_server.zookeeper.suspend()
    try:
        with within(0.0, 4.0), pytest.raises(MetadataUnavailableError):
            store.create("/hung")
        with within(0.0, 8.0):
            store.close()
    finally:
        own_server.zookeeper.resume()
    assert threads_of_kazoo() == []


def test_a_read_lasts_over_a_restart_of_the_server(own_server: LocalCluster, fragile: ZooKeeperStore) -> None:
    fragile.ensure_path("/kept/child")
    own_server.zookeeper.kill()
    restart = threading.Thread(target=own_server.zookeeper.start)
    restart.start()
    assert fragile.children("/kept") == ["child"]
    assert fragile.get_many(["/kept", "/absent"])[1] is None
    restart.join()


def test_reads_under_way_when_the_server_dies_are_asked_again_and_a_create_is_unknown_and_not_repeated(
    own_server: LocalCluster, fragile: ZooKeeperStore
) -> None:
    fragile.ensure_path("/kept/child")
    fragile.ensure_path("/once")
    own_server.zookeeper.suspend()
    with ThreadPoolExecutor(3) as pool:
        one, many = pool.submit(fragile.children, "/kept"), pool.submit(fragile.get_many, ["/kept", "/absent"])
        create = pool.submit(fragile.create, "/once/a")
        until(lambda: len(fragile._client._pending) >= 3)
        own_server.zookeeper.kill()
        own_server.zookeeper.start()
        assert one.result(DEADLINE_S) == ["child"]
        assert [found is None for found in many.result(DEADLINE_S)] == [False, True]
        with pytest.raises(MetadataUnavailableError, match="ConnectionLoss at /once/a"):
            create.result(DEADLINE_S)
    assert fragile.children("/once") == []


def test_a_session_with_its_ephemeral_paths_and_watches_outlives_a_restart_of_the_server(
    own_server: LocalCluster, fragile: ZooKeeperStore
) -> None:
    """Its store tells the session, the server and since when, and watches report what changed meanwhile."""
    renewed: list[int] = []
    fragile.on_new_session(lambda: renewed.append(1))
    fragile.create("/mine", ephemeral=True)
    fragile.ensure_path("/watched")
    changed, value_changed = threading.Event(), threading.Event()
    fragile.watch_children("/watched", changed.set)
    fragile.watch("/watched", value_changed.set)
    before, address = fragile.connection(), f"127.0.0.1:{own_server.zookeeper.port}"
    assert (before.servers, before.server) == ((address,), address)
    own_server.zookeeper.stop()
    until(lambda: not fragile.connection().server)
    until(lambda: not fragile.connection().session_id)
    assert fragile.connection().connected_s is None
    until(lambda: not fragile.session.is_connected)
    assert fragile.session.silent_s(fragile.session.changed_s + 5) == 5.0
    own_server.zookeeper.start()
    with connect(own_server.metadata_uri, connect_timeout_s=10.0, session_timeout_s=6.0) as other:
        other.create("/watched/meanwhile")
    assert changed.wait(DEADLINE_S)
    assert value_changed.wait(DEADLINE_S)
    until(lambda: fragile.children("/watched") == ["meanwhile"])
    assert fragile.get("/mine").version == 0
    after = fragile.connection()
    assert (after.server, after.session_id) == (address, before.session_id)
    assert after.connected_s is not None
    assert after.session_s is not None
    assert after.connected_s < after.session_s
    assert renewed == []


def test_an_expired_session_is_reported_once_with_the_new_one_working(store: ZooKeeperStore, znodes: Znodes) -> None:
    path = f"{znodes.root}/mine"
    renewals = threading.Semaphore(0)

    def register_again() -> None:
        store.create(path, b"again", ephemeral=True)
        renewals.release()

    store.create(path, b"first", ephemeral=True, make_parents=True)
    store.on_new_session(register_again)
    expire(store)
    assert renewals.acquire(timeout=DEADLINE_S)
    assert store.get(path).value == b"again"
    assert not renewals.acquire(blocking=False)
    expire(store)
    assert renewals.acquire(timeout=DEADLINE_S)


def test_a_store_tells_whether_it_is_connected_and_how_many_sessions_it_has_lost(fragile: ZooKeeperStore) -> None:
    first = fragile.session
    assert (first.is_connected, first.lost, first.silent_s(first.changed_s + 5)) == (True, 0, 0.0)
    renewed = threading.Event()
    fragile.on_new_session(renewed.set)
    expire(fragile)
    assert renewed.wait(DEADLINE_S)
    second = fragile.session
    assert (second.is_connected, second.lost, second.changed_s > first.changed_s) == (True, 1, True)


def test_a_watch_outlives_its_session(metadata_uri: str, store: ZooKeeperStore, znodes: Znodes) -> None:
    """Situation 88."""
    changed = threading.Event()
    store.ensure_path(znodes.root)
    store.watch_children(znodes.root, changed.set)
    renewed = threading.Event()
    store.on_new_session(renewed.set)
    expire(store)
    assert renewed.wait(DEADLINE_S)
    assert changed.wait(DEADLINE_S)
    changed.clear()
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as other:
        other.create(f"{znodes.root}/new")
        assert changed.wait(DEADLINE_S)


def test_a_listener_that_fails_after_a_lost_session_keeps_no_other_from_hearing(store: ZooKeeperStore, znodes: Znodes) -> None:
    """Situation 88."""
    calls: list[str] = []
    heard = threading.Semaphore(0)

    def fail() -> None:
        calls.append("fails")
        raise RuntimeError("a listener's own bug")

    store.ensure_path(f"{znodes.root}/a")
    store.on_new_session(fail)
    store.on_new_session(lambda: calls.append("session"))
    store.watch_children(znodes.root, fail)
    store.watch_children(znodes.root, heard.release)
    expire(store)
    assert heard.acquire(timeout=DEADLINE_S)
    assert calls == ["fails", "session", "fails"]
    store.create(f"{znodes.root}/b")
    assert heard.acquire(timeout=DEADLINE_S)


def test_many_threads_share_one_store(store: ZooKeeperStore, znodes: Znodes) -> None:
    store.ensure_path(znodes.root)
    made: list[str] = []

    def work() -> None:
        for _ in range(20):
            made.append(store.create_sequential(f"{znodes.root}/ID-"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(set(made)) == 160


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port where nothing listens, kept from others."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def expire(store: ZooKeeperStore) -> None:
    """End the store's session on the server, as only its own id and password can."""
    double = KazooClient(parse_uri(store.uri)[0])
    double._session_id, double._session_passwd = store._client.client_id
    double.start(10.0)
    double.stop()
    double.close()


def forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


_threads_before: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _note_threads() -> None:
    """Sessions that fixtures and other modules keep open have threads of their own."""
    _threads_before.clear()
    _threads_before.update(threading.enumerate())


def threads_of_kazoo() -> list[str]:
    """Kazoo's threads that this test started: those whose target is in kazoo."""
    mine = [thread for thread in threading.enumerate() if thread not in _threads_before]
    return [t.name for t in mine if "kazoo" in (getattr(getattr(t, "_target", None), "__module__", "") or "")]


@contextlib.contextmanager
def within(least_s: float, most_s: float) -> Iterator[None]:
    """The end comes in time: ``most_s`` on an idle machine, a few times as long on a busy one, and not after minutes."""
    start = time.monotonic()
    yield
    assert least_s <= time.monotonic() - start <= BUSY * most_s


def answers(store: ZooKeeperStore) -> bool:
    try:
        store.sync("/")
    except MetadataUnavailableError:
        return False
    return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
