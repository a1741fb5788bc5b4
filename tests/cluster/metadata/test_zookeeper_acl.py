"""ZooKeeper's access control, on a real one: what an authenticated session creates is its own, and who may not is told so.

Ref: ZooKeeper Programmer's Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, make_digest_acl

from bk_spark.bookie.identity.cookie_file import read_znode
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError, ConfigError, MetadataAccessError, MetadataConflictError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.security import command_options
from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata import zookeeper_members
from bk_spark.metadata.ledger_ids import ledger_ids
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, list_bookies, lookup, register
from bk_spark.metadata.store import ANY_VERSION, Create, SetValue
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.metadata.zookeeper_auth import SessionSecurity
from bk_spark.metadata.zookeeper_members import members, protect

AUTH, OTHER = "digest:ann:s3cret", "digest:bob:s3cret"
ONLY_ANN = [make_digest_acl("ann", "s3cret", all=True)]


@contextmanager
def session(uri: str, auth: str = "") -> Iterator[ZooKeeperStore]:
    with connect(uri, connect_timeout_s=10.0, session_timeout_s=10.0, auth=auth) as store:
        yield store


@pytest.fixture
def raw(zookeeper_server: LocalZooKeeper) -> Iterator[KazooClient]:
    """Sees access control as it is, as who may read it."""
    client = KazooClient(zookeeper_server.address, auth_data=[("digest", "ann:s3cret")])
    client.start()
    yield client
    client.stop()
    client.close()


def tree(raw: KazooClient, path: str) -> list[str]:
    return [path] + [below for name in raw.get_children(path) for below in tree(raw, f"{path}/{name}")]


def test_what_an_authenticated_session_creates_is_its_own(metadata_uri: str, znodes: Znodes, raw: KazooClient) -> None:
    """The root with its parents, sequential and ephemeral znodes, and those of transactions."""
    root = znodes.root
    with session(metadata_uri, AUTH) as store:
        initialise_cluster(store, znodes)
        store.create(f"{root}/a/b/c", make_parents=True)
        store.create(f"{root}/ephemeral", ephemeral=True)
        store.create_sequential(f"{root}/sequential-")
        store.transaction([Create(f"{root}/t"), Create(f"{root}/t/u", b"x")])
        register(store, znodes, BookieAddress("bookie", "127.0.0.1", 1))
        paths = tree(raw, root)
        assert len(paths) > 15
        assert {path for path in paths if raw.get_acls(path)[0] != ONLY_ANN} == set()


def test_without_a_credential_everybody_may_do_everything(store: ZooKeeperStore, znodes: Znodes, raw: KazooClient) -> None:
    initialise_cluster(store, znodes)
    assert {acl.id.scheme for path in tree(raw, znodes.root) for acl in raw.get_acls(path)[0]} == {"world"}


@pytest.mark.parametrize(
    ("auth", "shown", "refused_at"),
    [
        ("", "is missing", "{root}"),
        (OTHER, "is (not shown)", "{root}"),
        ("nosuch:scheme", "is (not shown)", "any path"),
    ],
)
def test_a_client_without_the_credential_is_refused_at_once_and_told_why(
    metadata_uri: str, znodes: Znodes, auth: str, shown: str, refused_at: str
) -> None:
    with session(metadata_uri, AUTH) as store:
        initialise_cluster(store, znodes)
    began = time.monotonic()
    with pytest.raises(MetadataAccessError) as refused:
        BookKeeper(metadata_uri, ClientConfig(zookeeper_auth=auth, connect_timeout_s=20.0, session_timeout_s=20.0))
    assert time.monotonic() - began < 10.0
    sentence = str(refused.value)
    assert sentence.startswith("zookeeper_auth (zookeeperAuth, --zookeeper-auth-file) " + shown)
    assert f": ZooKeeper refuses access to {refused_at.format(root=znodes.root)}" in sentence
    assert sentence.endswith("give that of a member of the cluster, such as a bookie")
    assert "s3cret" not in sentence + repr(refused.value)
    assert isinstance(refused.value, ConfigError)
    assert not refused.value.retryable


def test_a_session_whose_scheme_the_server_does_not_know_fails_at_once_with_every_call(
    metadata_uri: str, znodes: Znodes
) -> None:
    hosts, _ = parse_uri(metadata_uri)
    store = ZooKeeperStore(metadata_uri, hosts, 20.0, SessionSecurity("nosuch:scheme"))
    store.open(20.0)
    try:
        deadline = time.monotonic() + 10.0
        while store._client.connected and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
        with pytest.raises(MetadataAccessError):
            store.get(znodes.root)
        assert time.monotonic() - began < 10.0
    finally:
        store.close()


def test_a_refusal_that_comes_before_the_connection_is_seen_is_no_wait_for_one(
    metadata_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_async(client: KazooClient) -> threading.Event:
        real_start(client)
        return threading.Event()  # as if each look came too early or too late

    real_start = KazooClient.start_async
    monkeypatch.setattr(KazooClient, "start_async", start_async)
    began = time.monotonic()
    with pytest.raises(MetadataAccessError):
        BookKeeper(metadata_uri, ClientConfig(zookeeper_auth="nosuch:scheme", connect_timeout_s=20.0))
    assert time.monotonic() - began < 10.0


def test_nothing_that_may_not_be_seen_is_taken_for_absent(metadata_uri: str, znodes: Znodes) -> None:
    """Protocol rule 44: garbage collection acts on what is absent, so a refusal must not look like an absence."""
    with session(metadata_uri, AUTH) as store:
        initialise_cluster(store, znodes)
        register(store, znodes, BookieAddress("bookie", "127.0.0.1", 1))
        store.create(znodes.cookie("bookie"), b"cookie")
        store.create(znodes.ledger(7), b"metadata", make_parents=True)
        with session(metadata_uri) as stranger:
            calls: list[Callable[[], object]] = [
                lambda: stranger.get(znodes.ledger(7)),
                lambda: stranger.get_many([znodes.ledger(8), znodes.ledger(7)]),
                lambda: stranger.children(znodes.available),
                lambda: stranger.delete(znodes.ledger(7), ANY_VERSION),
                lambda: stranger.set(znodes.ledger(7), b"other", 0),
                lambda: stranger.create(znodes.ledger(8)),
                lambda: stranger.create_sequential(znodes.id_prefix),
                lambda: stranger.ensure_path(f"{znodes.root}/x/y"),
                lambda: stranger.transaction([SetValue(znodes.ledger(7), b"other", 0)]),
                lambda: stranger.watch_children(znodes.available, lambda: None),
                lambda: list_bookies(stranger, znodes),
                lambda: lookup(stranger, znodes, "bookie"),
                lambda: list(ledger_ids(stranger, znodes)),
                lambda: read_znode(stranger, znodes, "bookie"),
                lambda: initialise_cluster(stranger, znodes),
            ]
            for call in calls:
                with pytest.raises(MetadataAccessError):
                    call()
        assert store.get(znodes.ledger(7)).value == b"metadata"


def test_a_session_after_an_expired_one_is_authenticated_too(metadata_uri: str, znodes: Znodes, raw: KazooClient) -> None:
    """Situation 88: after the session expired."""
    with session(metadata_uri, AUTH) as store:
        initialise_cluster(store, znodes)
        is_new = threading.Event()
        store.on_new_session(is_new.set)
        expire(store._client)
        assert is_new.wait(20)
        store.create(f"{znodes.root}/after", ephemeral=True)
        assert raw.get_acls(f"{znodes.root}/after")[0] == ONLY_ANN


def test_an_access_control_that_is_replaced_after_it_was_read_is_read_again(
    metadata_uri: str, znodes: Znodes, raw: KazooClient
) -> None:
    """Or whoever keeps what others had would give it back to them after it was taken away."""
    reader = make_digest_acl("eve", "s3cret", read=True)
    with session(metadata_uri, AUTH) as store:
        initialise_cluster(store, znodes)
        raw.set_acls(znodes.available, [*ONLY_ANN, reader])
        seen = []

        def change(acl: Sequence[ACL]) -> Sequence[ACL]:
            seen.append(list(acl))
            if len(seen) == 1:
                raw.set_acls(znodes.available, ONLY_ANN)  # somebody takes it away from the reader
            return [make_digest_acl("bob", "s3cret", all=True), *acl]

        assert store.change_acls([znodes.available, f"{znodes.root}/missing"], change) == 1
        assert seen == [[*ONLY_ANN, reader], ONLY_ANN]
        assert reader not in raw.get_acls(znodes.available)[0]


def expire(client: KazooClient) -> None:
    """End the session from another connection that takes it over, as only its owner can."""
    thief = KazooClient(client.hosts[0][0] + f":{client.hosts[0][1]}", client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_who_watches_and_loses_access_is_told_and_learns_why(metadata_uri: str, znodes: Znodes, raw: KazooClient) -> None:
    with session(metadata_uri, AUTH) as owner:
        initialise_cluster(owner, znodes)
        for path in (znodes.root, znodes.available):
            raw.set_acls(path, [*ONLY_ANN, make_digest_acl("bob", "s3cret", all=True)])
        with session(metadata_uri, OTHER) as watcher:
            is_told = threading.Event()
            watcher.watch_children(znodes.available, is_told.set)
            raw.set_acls(znodes.available, ONLY_ANN)
            watcher._handler.cut()  # ZooKeeper tells such a session of nothing any more; a new connection asks again
            assert is_told.wait(10)
            with pytest.raises(MetadataAccessError):
                watcher.children(znodes.available)


def test_a_credential_on_a_root_that_is_open_works_and_is_warned_of(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    """What is made there belongs to whom the root belongs to: so members may get their credentials one after the other."""
    initialise_cluster(store, znodes)
    caplog.set_level(logging.WARNING)
    with session(metadata_uri, AUTH) as member:
        assert "everybody may change the root of" in caplog.text
        register(member, znodes, BookieAddress("bookie", "127.0.0.1", 1))
        for one in (member, store):
            assert [bookie.bookie_id for bookie in list_bookies(one, znodes)] == ["bookie"]


# --- an open cluster becomes its members' without a stop


def test_protect_gives_all_that_is_there_and_all_that_comes_to_the_members(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes, raw: KazooClient
) -> None:
    initialise_cluster(store, znodes)
    for number in range(300):
        store.create(znodes.ledger(number), b"metadata", make_parents=True)
    bob = make_digest_acl("bob", "s3cret", all=True)
    both = {*ONLY_ANN, bob}
    with session(metadata_uri, AUTH) as ann, session(metadata_uri, OTHER) as other:
        changed = protect(ann, znodes.root, [f"digest:{bob.id.id}"])
        paths = tree(raw, znodes.root)
        assert changed == len(paths) - 1
        assert [path for path in paths if set(raw.get_acls(path)[0]) != both] == []
        assert members(ann, znodes.root) == [f"digest:{one.id.id}" for one in (*ONLY_ANN, bob)]
        assert protect(ann, znodes.root, [f"digest:{bob.id.id}"]) == 0
        with pytest.raises(MetadataAccessError):
            store.get(znodes.ledger(1))
        deadline = time.monotonic() + 10.0
        while set(raw.get_acls(made(other, znodes))[0]) != both:  # it was told, and follows
            assert time.monotonic() < deadline
        assert ann.get(znodes.ledger(1)).value == other.get(znodes.ledger(1)).value == b"metadata"
        assert protect(other, znodes.root, []) > 300
        with pytest.raises(MetadataAccessError):
            ann.get(znodes.ledger(1))


def made(store: ZooKeeperStore, znodes: Znodes) -> str:
    path = f"{znodes.root}/made-{time.monotonic_ns()}"
    store.create(path)
    return path


def test_what_somebody_made_for_everybody_meanwhile_is_found_by_the_next_run(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes, raw: KazooClient
) -> None:
    initialise_cluster(store, znodes)
    with session(metadata_uri, AUTH) as ann:
        protect(ann, znodes.root, [])
        raw.create(f"{znodes.available}/made")
        assert [protect(ann, znodes.root, []) for _ in range(2)] == [1, 0]


def test_two_who_protect_a_cluster_for_different_members_do_not_both_succeed(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes, raw: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialise_cluster(store, znodes)
    bob = make_digest_acl("bob", "s3cret", all=True)

    def meanwhile(*_: object) -> int:
        raw.set_acls(znodes.root, [*ONLY_ANN, bob])
        return 0

    monkeypatch.setattr(zookeeper_members, "_give_below", meanwhile)
    with session(metadata_uri, AUTH) as ann, pytest.raises(MetadataConflictError, match="the access control of"):
        protect(ann, znodes.root, [])


@pytest.mark.parametrize(
    ("auth", "others", "why"),
    [
        ("", [], r"zookeeper_auth .* is missing: whoever protects a cluster must be one of its members"),
        (AUTH, ["world:anyone"], r"a member \(--member\) is 'world:anyone': write it as ZooKeeper does"),
        (AUTH, ["digest:bob:secret"], r"a member \(--member\) is 'digest:…': write it"),
        (AUTH, ["nosuch:bob"], r"the access control is 'nosuch:bob': ZooKeeper knows no such identity"),
        (AUTH, [f"digest:bob:{number}" for number in range(100)], r"members \(--member\) is 100: there may be 100"),
    ],
)
def test_members_that_cannot_be_are_refused_and_nothing_is_changed(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes, raw: KazooClient, auth: str, others: list[str], why: str
) -> None:
    initialise_cluster(store, znodes)
    with session(metadata_uri, auth) as one, pytest.raises(ConfigError, match=why):
        protect(one, znodes.root, others)
    assert {acl.id.scheme for path in tree(raw, znodes.root) for acl in raw.get_acls(path)[0]} == {"world"}


def test_neither_credentials_nor_what_is_stored_is_in_a_log_of_everything(
    metadata_uri: str, znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo logs requests and answers for debugging; a ledger's metadata holds its password."""
    caplog.set_level(1)
    with session(metadata_uri, AUTH) as store:
        store.create(znodes.root, b"pa55word")
        store.get(znodes.root)
        for name in ("bk_spark.metadata.zookeeper", "kazoo", "kazoo.client"):
            caplog.set_level(1, logger=name)
        store.set(znodes.root, b"pa55word", 0)
    assert "s3cret" not in caplog.text
    assert "pa55word" not in caplog.text


# --- a whole cluster: the secured one of the run has TLS too


def test_ledgers_and_logs_of_a_protected_cluster_are_its_members_alone(secured_cluster: LocalCluster) -> None:
    uri, config = secured_cluster.metadata_uri, secured_cluster.client_config
    with BookKeeper(uri, config) as client:
        with client.create_ledger(password=b"right") as writer:
            writer.append(b"x")
        with pytest.raises(UnauthorizedAccessError):
            client.open_ledger(writer.ledger_id, b"wrong")
        log = client.open_log("protected", create=True)
        with log.open_writer() as leader:
            leader.append(b"y")
    for auth in ("", OTHER):
        with pytest.raises(MetadataAccessError, match="ZooKeeper refuses access to /ledgers"):
            BookKeeper(uri, replace(config, zookeeper_auth=auth))


def test_commands_take_the_credential_from_a_file_or_the_environment_and_say_what_is_wrong_with_it(
    secured_cluster: LocalCluster, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = secured_cluster.client_config
    tls = command_options(config)
    listing = ["bookie", "list", "--metadata", secured_cluster.metadata_uri, "--json"]
    secret = tmp_path / "secret"
    secret.write_text(config.zookeeper_auth + "\n")
    secret.chmod(0o600)

    assert main([*listing, *tls, "--zookeeper-auth-file", str(secret)]) == 0
    assert capsys.readouterr().out.count('"answers": true') == 3
    assert main([*listing, "--zookeeper-auth-file", str(secret)]) == 1
    assert "tls_ca (tlsCa, --tls-ca) is missing: the metadata URI" in capsys.readouterr().err
    assert main([*listing, *tls]) == 1
    assert "zookeeper_auth (zookeeperAuth, --zookeeper-auth-file) is missing: ZooKeeper refuses" in capsys.readouterr().err
    monkeypatch.setenv("BK_SPARK_ZOOKEEPER_AUTH", config.zookeeper_auth)
    assert main([*listing, *tls]) == 0
    assert main(["cluster", "show", "--metadata", secured_cluster.metadata_uri, *tls]) == 0
    assert "digest:" in capsys.readouterr().out
    assert main(["doctor", "--metadata", secured_cluster.metadata_uri]) == 1
    assert "asks for TLS" in capsys.readouterr().out


def test_a_ledgers_password_is_in_no_listing_no_json_and_no_error(
    secured_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config, uri = secured_cluster.client_config, secured_cluster.metadata_uri
    with BookKeeper(uri, config) as client, client.create_ledger(password=b"pa55word") as writer:
        writer.append(b"x")
    monkeypatch.setenv("BK_SPARK_ZOOKEEPER_AUTH", config.zookeeper_auth)
    monkeypatch.setenv("BK_SPARK_METADATA", uri)
    options = command_options(config)
    ledger = str(writer.ledger_id)
    for form in ([], ["--json"]):
        for arguments in (["ledger", "show", ledger], ["ledger", "list"]):
            assert main([*arguments, *options, *form]) == 0
        assert main(["ledger", "read", ledger, "--password", "pa55word", *options, *form]) == 0
        assert main(["ledger", "read", ledger, "--password", "not-the-pa55word", *options, *form]) == 1
    said = capfd.readouterr()
    assert ledger in said.out
    assert f"wrong password for ledger {ledger}" in said.err
    assert "pa55word" not in said.out + said.err


def test_a_bookie_without_the_credential_of_its_cluster_does_not_start(secured_cluster: LocalCluster) -> None:
    bookie = secured_cluster.bookies[1]
    secured = bookie.config
    bookie.stop()
    try:
        bookie.config = replace(secured, zookeeper_auth="")
        with pytest.raises(MetadataAccessError):
            bookie.start()
    finally:
        bookie.config = secured
        bookie.start()


def test_the_secrets_of_a_cluster_are_in_no_log_and_no_command_line(secured_cluster: LocalCluster) -> None:
    secret = secured_cluster.client_config.zookeeper_auth.split(":")[-1]
    for bookie in secured_cluster.bookies:
        with open(f"/proc/{bookie.pid}/cmdline", "rb") as arguments:
            assert secret.encode() not in arguments.read()
        assert secret not in bookie.log.read_text(errors="replace")
    assert secret not in repr(secured_cluster.bookies[0].config) + repr(secured_cluster.client_config)


@pytest.mark.parametrize("auth", ["digest:ann", "ann", "sasl:ann", "x509:CN=ann", "x\ny:z"])
def test_a_credential_of_no_use_is_refused_before_anything_is_connected(auth: str) -> None:
    with pytest.raises(ConfigError, match="must be scheme:credential"):
        connect("zk://127.0.0.1:1/ledgers", connect_timeout_s=20.0, session_timeout_s=10.0, auth=auth)
    with pytest.raises(BookKeeperError, match="not shown"):
        ClientConfig(zookeeper_auth=auth)
