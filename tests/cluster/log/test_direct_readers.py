"""A secured log that an identity reads directly, which is no member: it reads that log, and nothing else is open to it.

On real bookies with ``members`` and a real ZooKeeper, where its certificate is its identity.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.errors import BookieUnavailableError, BookKeeperError, ConfigError, LedgerFencedError, MetadataAccessError
from bk_spark.local.security import command_environment, command_options
from bk_spark.log import direct_readers
from bk_spark.log.direct_readers import change_direct_readers
from bk_spark.log.log_handle import Log, LogPosition
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.metadata.store import StoreChange
from bk_spark.metadata.zookeeper_members import protect
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.log.direct_readers import IDENTITY, READER, STRANGER, Guarded, guarded

Command = Callable[..., int]

ROWS = pa.table({"item": ["apples", "pears", "plums"], "amount": [3, 5, 7]})
SENTENCE = (
    r"zookeeper_auth \(zookeeperAuth, --zookeeper-auth-file\) is that of x509:CN=reader, which reads single logs and is no "
    r"member of the cluster: it may not {}"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


@pytest.fixture(scope="module")
def member(place: Guarded) -> Iterator[BookKeeper]:
    with place.client() as made:
        yield made


@pytest.fixture
def log(member: BookKeeper) -> Log:
    """Secured, with keys and rows, and read by the reader."""
    made = secured(member)
    made.append_rows(ROWS, partition_key="item", lanes=2)
    give(member, made)
    return made


@pytest.fixture
def reader(place: Guarded, log: Log) -> Iterator[BookKeeper]:
    with place.client(READER) as made:
        yield made


def secured(member: BookKeeper) -> Log:
    made = member.open_log(f"log-{uuid.uuid4().hex}", create=True)
    made.secure()
    return made


def give(member: BookKeeper, log: Log, *, remove: bool = False) -> int:
    names = [IDENTITY]
    done = change_direct_readers(member.metadata_store, member.logs, log.name, [] if remove else names, names if remove else [])
    assert done.readers == (() if remove else (IDENTITY,))
    return done.changed


def rows(client: BookKeeper, name: str, **more: Any) -> list[dict[str, Any]]:
    found = client.open_log(name).read_rows(**more).read_all().to_pylist()
    return sorted(found, key=lambda row: (row["amount"], row["item"]))


# --- what a reader may


def test_a_reader_reads_what_is_there_and_what_comes(member: BookKeeper, log: Log, reader: BookKeeper) -> None:
    assert rows(reader, log.name) == ROWS.to_pylist()
    log.append_rows(pa.table({"item": ["figs"], "amount": [9], "color": ["blue"]}), merge_schema=True)
    assert [row["color"] for row in rows(reader, log.name)] == [None, None, None, "blue"]
    member.logs.write_checkpoint(log.name, log.uid, 2)
    log.compact_by_key(KeyCompaction(min_age_s=0))
    mine = reader.open_log(log.name)
    assert len(rows(reader, log.name)) == 4
    assert rows(reader, log.name, version=1) == ROWS.to_pylist()
    assert mine.get("pears").to_pylist() == [{"item": "pears", "amount": 5, "color": None}]
    assert mine.schema.names == ["item", "amount", "color"]
    assert mine.is_secured
    assert reader.versions_of([log.name]) == {log.name: log.snapshot().version}
    assert reader.read_rows([log.name]).read_all().num_rows == 4
    assert len(list(mine.read_rows(view="latest").read_all().to_pylist())) == 4
    assert len(reader.list_bookies()) == 3


def test_a_reader_follows_a_leader_and_disturbs_nobody(member: BookKeeper, reader: BookKeeper) -> None:
    log = secured(member)
    give(member, log)
    with log.open_row_writer(ROWS.schema) as writer:
        writer.append(ROWS)
        mine = reader.open_log(log.name)
        tail = mine.tail_rows("earliest", timeout_s=5.0)
        assert next(iter(tail)).num_rows == 3
        writer.append(ROWS)
        assert next(iter(tail)).num_rows == 3
        tail.close()
        assert mine.read_rows().read_all().num_rows == 6
        writer.append(ROWS)
    assert len(rows(reader, log.name)) == 9


@pytest.mark.timeout(120)
def test_a_reader_neither_recovers_nor_fences_what_a_leader_writes(member: BookKeeper, reader: BookKeeper) -> None:
    log = secured(member)
    give(member, log)
    with log.open_row_writer(ROWS.schema) as leader:
        leader.append(ROWS)
        mine = reader.open_log(log.name)
        (ledger,) = log.snapshot().open_ledgers
        for change in (mine.recover, lambda: reader.open_ledger(ledger.ledger_id), mine.open_writer):
            assert not_refused(log, change, "") == ""
        leader.append(ROWS)
    assert log.snapshot().version == 2  # its own commits: of the ledger and of its end
    assert len(rows(reader, log.name)) == 6


@pytest.fixture
def command(place: Guarded, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command with an identity."""

    def run(config: ClientConfig, *words: str) -> int:
        for name, value in command_environment(config).items():
            monkeypatch.setenv(name, value)
        return main([*words, "--metadata", place.uri, *command_options(config)])

    return run


def test_commands_let_somebody_read_and_read_for_him(
    place: Guarded, member: BookKeeper, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    run, log = command, secured(member)
    log.append_rows(ROWS)
    assert run(place.member_config, "log", "readers", log.name, "--add", IDENTITY, "--json") == 0
    assert f'"readers": ["{IDENTITY}"]' in capsys.readouterr().out
    assert run(place.member_config, "log", "readers", log.name) == 0
    assert IDENTITY in capsys.readouterr().out
    reader = place.config(READER)
    assert run(reader, "log", "read", log.name, "--json") == 0
    assert "plums" in capsys.readouterr().out
    assert run(reader, "log", "show", log.name, "--json") == 0
    shown = capsys.readouterr()
    assert '"rows": 3' in shown.out
    assert '"cursors": null' in shown.out
    assert f"it may not read 'cursors' of log '{log.name}'" in shown.err
    for refused in (
        ["log", "list"],
        ["bookie", "list"],
        ["ledger", "list"],
        ["log", "truncate", log.name, "--before", f"{log.ledgers()[0].ledger_id}:0"],
    ):
        assert run(reader, *refused) == 1
        assert "is that of x509:CN=reader" in capsys.readouterr().err
    assert run(place.member_config, "log", "readers", log.name, "--remove", IDENTITY) == 0
    assert "may have kept keys" in capsys.readouterr().err
    assert run(reader, "log", "read", log.name) == 1


def test_removal_closes_the_open_ledger_whose_key_the_reader_may_have_kept(
    place: Guarded, member: BookKeeper, command: Command
) -> None:
    log = secured(member)
    give(member, log)
    writer = log.open_row_writer(ROWS.schema)
    writer.append(ROWS)
    [left] = log.snapshot().open_ledgers
    assert command(place.member_config, "log", "readers", log.name, "--remove", IDENTITY) == 0
    with pytest.raises(LedgerFencedError):
        writer.append(ROWS)
    assert member.ledger_metadata(left.ledger_id).state is LedgerState.CLOSED
    assert len(rows(member, log.name)) == 3


# --- what it may not


def refusals(client: BookKeeper, log: Log, other: Log) -> dict[str, tuple[Callable[[], object], str]]:
    """What a reader tries → what the sentence says that it may not."""
    change = f"change log '{log.name}': give the credential of a member"
    log.append_rows(ROWS)  # keys that a compaction leaves out, and ledgers behind those that a truncation removes
    mine = client.open_log(log.name)
    ledger_id = mine.ledgers()[0].ledger_id

    def transact() -> None:
        with client.transaction() as together:
            together.append_rows(log.name, ROWS)

    return {
        "append_rows": (lambda: mine.append_rows(ROWS), "log"),
        "open_writer": (mine.open_writer, "log"),
        "open_row_writer": (mine.open_row_writer, "log"),
        "transaction": (transact, "log"),
        "truncate": (lambda: mine.truncate(LogPosition(mine.ledgers()[-1].ledger_id, 0)), "log"),
        "delete": (mine.delete, change),
        "set_compaction": (lambda: mine.set_compaction(KeyCompaction()), change),
        "compact_by_key": (lambda: mine.compact_by_key(KeyCompaction(min_age_s=0)), "change the cluster"),
        "vacuum": (lambda: client.vacuum_log(log.name), ""),
        "create a log": (lambda: client.open_log("mine", create=True), "change the cluster"),
        "create a ledger": (client.create_ledger, "change the cluster"),
        "delete a ledger": (lambda: client.delete_ledger(ledger_id, force=True), "change the cluster"),
        "list the logs": (client.list_logs, "list the logs"),
        "list the ledgers": (lambda: list(client.list_ledgers()), "read /"),
        "orphans": (lambda: list(client.find_orphans()), ""),
        "another log": (lambda: client.open_log(other.name), f"read log '{other.name}': a member of the cluster lets it"),
        "another log's ledger": (lambda: client.open_ledger(other.ledgers()[0].ledger_id, recover=False), "read /"),
        "the secret": (
            lambda: client.metadata_store.get(client.logs.names.paths(log.uid).secret),
            f"read 'secret' of log '{log.name}'",
        ),
        "more readers": (
            lambda: change_direct_readers(client.metadata_store, client.logs, log.name, ["x509:CN=stranger"]),
            "",
        ),
    }


@pytest.fixture(scope="module")
def other(member: BookKeeper) -> Log:
    """A secured log that the reader may not read."""
    made = secured(member)
    made.append_rows(ROWS)
    return made


def not_refused(log: Log, call: Callable[[], object], said: str) -> str:
    """What is wrong with how a reader is refused."""
    try:
        call()
    except MetadataAccessError as refused:
        text, expected = str(refused), f"log '{log.name}'" if said == "log" else said
        who = "is that of x509:CN=reader, which reads single logs and is no member of the cluster: it may not"
        return "" if who in text and expected in text else text
    except BookKeeperError as other:
        return repr(other)
    return "it was done, or there was nothing to do"


def test_all_else_is_refused_with_a_sentence_and_changes_nothing(
    place: Guarded, log: Log, other: Log, reader: BookKeeper
) -> None:
    with place.zookeeper() as zookeeper:
        tried = refusals(reader, log, other)
        before = values(zookeeper, reader.znodes.root)
        assert {what: said for what, one in tried.items() if (said := not_refused(log, *one))} == {}
        assert values(zookeeper, reader.znodes.root) == before


def test_bookies_give_a_reader_what_its_keys_open_and_nothing_else(
    place: Guarded, member: BookKeeper, log: Log, reader: BookKeeper
) -> None:
    with member.create_ledger() as plain:
        plain.append(b"x")
    with place.zookeeper() as zookeeper:  # as if its metadata were known
        path = member.znodes.ledger(plain.ledger_id)
        closed = zookeeper.get_acls(path)[0]
        zookeeper.set_acls(path, zookeeper.get_acls(member.logs.names.paths(log.uid).head)[0])
        with pytest.raises(BookieUnavailableError, match="whoever asks is not in this bookie's file of members"):
            list(reader.open_ledger(plain.ledger_id, recover=False).read(0, 0))
        zookeeper.set_acls(path, closed)
    bookie = reader.list_bookies()[0].bookie_id
    assert reader.administer_bookie(bookie, AdminOperation.READ_ONLY_ON).status is Status.UNAUTHORIZED


def values(zookeeper: KazooClient, path: str) -> dict[str, tuple[object, ...]]:
    value, stat = zookeeper.get(path)
    acl, _ = zookeeper.get_acls(path)
    if "/cookies/" in path:  # which a bookie changes once a minute
        value = b""
    found: dict[str, tuple[object, ...]] = {} if stat.ephemeralOwner else {path: (value, stat.aversion, tuple(acl))}
    for name in zookeeper.get_children(path):
        found |= values(zookeeper, f"{path}/{name}")
    return found


def every_path(zookeeper: KazooClient, path: str) -> list[str]:
    return [path] + [below for name in zookeeper.get_children(path) for below in every_path(zookeeper, f"{path}/{name}")]


def open_to(zookeeper: KazooClient, paths: list[str]) -> dict[str, set[str]]:
    """Of each path what ZooKeeper lets this session do there, but for what nobody is refused."""
    found = {}
    for path in paths:
        tries = {
            "get": zookeeper.get_async(path),
            "list": zookeeper.get_children_async(path),
            "set": zookeeper.set_async(path, b"mine"),
            "set ACL": zookeeper.set_acls_async(path, OPEN_ACL_UNSAFE),
            "create": zookeeper.create_async(f"{path}/mine", b"mine"),
            "delete": zookeeper.delete_async(path),
        }
        found[path] = {what for what, tried in tries.items() if not is_refused(tried)}
    return {path: what for path, what in found.items() if what}


def is_refused(tried: Any) -> bool:
    try:
        tried.get(timeout=30.0)
    except (NoAuthError, NotEmptyError):
        return True
    return False


def needed(member: BookKeeper, log: Log) -> set[str]:
    """The znodes that reading the log takes."""
    znodes, paths = member.znodes, member.logs.names.paths(log.uid)
    store = member.metadata_store
    found = {znodes.layout_path, znodes.instance_id, znodes.available, znodes.read_only}
    found |= {znodes.registration(one.bookie_id) for one in member.list_bookies()}
    found |= {znodes.log_name(log.name), paths.head}
    found |= {paths.schema(int(one)) for one in store.children(paths.schemas)}
    for version in member.logs.reader.versions(log.name, log.uid, 1, log.snapshot().version):
        found.add(paths.version(version.version))
        found |= {paths.job(version.job_id).page(index) for index in range(version.pages)}
        for one in member.logs.reader.snapshot(log.name, version.version).ledgers:
            found.add(znodes.ledger(one.ledger_id))
    return found


def test_zookeeper_lets_a_reader_read_what_it_needs_and_do_nothing_else(
    place: Guarded, member: BookKeeper, log: Log, other: Log
) -> None:
    log.append_rows(ROWS)
    with place.zookeeper() as every, place.zookeeper(READER) as mine, place.zookeeper(STRANGER) as strange:
        paths = every_path(every, member.znodes.root)
        assert open_to(strange, paths) == {}
        found = open_to(mine, paths)
        others = {path for path in found if "/bk_spark/logs/data/" in path and log.uid not in path}
        assert {tuple(sorted(what)) for what in found.values()} == {("get", "list")}
    expected = needed(member, log)
    assert expected <= set(found)
    assert all(other.uid not in path for path in others)
    assert {path for path in found if log.uid in path} == {path for path in expected if log.uid in path}


# --- changes of readers


def test_a_reader_who_is_removed_reads_nothing_any_more(
    place: Guarded, member: BookKeeper, reader: BookKeeper, log: Log
) -> None:
    assert give(member, log, remove=True) > 5
    assert give(member, log, remove=True) == 0
    with pytest.raises(MetadataAccessError, match=SENTENCE.format(f"read log '{log.name}'")):
        reader.open_log(log.name)
    log.append_rows(ROWS)
    with place.zookeeper(READER) as mine, place.zookeeper() as every:
        found = open_to(mine, every_path(every, member.znodes.root))
    assert {path for path in found if log.uid in path} == set()
    assert not {member.znodes.ledger(one.ledger_id) for one in log.ledgers()} & set(found)


def test_who_reads_no_log_any_more_is_an_outsider_again(place: Guarded, member: BookKeeper) -> None:
    for name in member.list_logs():
        change_direct_readers(member.metadata_store, member.logs, name, remove=[IDENTITY])
    with place.zookeeper(READER) as mine, place.zookeeper() as every:
        assert open_to(mine, every_path(every, member.znodes.root)) == {}
    with pytest.raises(MetadataAccessError, match="ZooKeeper refuses access to"), place.client(READER):
        pass


def before_transaction(client: BookKeeper, monkeypatch: pytest.MonkeyPatch, wanted: str, action: Callable[[], object]) -> None:
    """Somebody else acts once, right before the client's first transaction that changes a path which ends so."""
    send, done = client.metadata_store.transaction, []

    def transaction(changes: list[StoreChange]) -> None:
        if not done and any(one.path.endswith(wanted) for one in changes):
            done.append(action())
        send(changes)

    monkeypatch.setattr(client.metadata_store, "transaction", transaction)


@pytest.mark.parametrize("moment", ["the creation of its ledger", "its commit"])
def test_a_write_that_was_under_way_is_read_too(
    place: Guarded, member: BookKeeper, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = secured(member)
    with place.client() as writing, place.client() as operator:
        wanted = "/running" if moment.startswith("the creation") else "/head"
        before_transaction(writing, monkeypatch, wanted, lambda: give(operator, log))
        if moment == "its commit":
            writing.open_log(log.name).append_rows(ROWS)
        else:
            with writing.open_log(log.name).open_row_writer(ROWS.schema) as leader:
                leader.append(ROWS)
    with place.client(READER) as reader:
        assert rows(reader, log.name) == ROWS.to_pylist()


def test_a_command_that_died_within_its_pass_is_run_again(
    place: Guarded, member: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = secured(member)
    log.append_rows(ROWS)

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(direct_readers, "_give_log", dies)
        with pytest.raises(KeyboardInterrupt):
            give(member, log)
    assert give(member, log) >= 5  # head, schema, version, page, ledger
    assert give(member, log) == 0
    with place.client(READER) as reader:
        assert rows(reader, log.name) == ROWS.to_pylist()


def test_of_two_operators_at_once_both_have_their_way(
    member: BookKeeper, place: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = secured(member)
    log.append_rows(ROWS)
    give_log, done = direct_readers._give_log, []

    def meanwhile(*arguments: Any) -> int:
        if not done:
            done.append(True)
            with place.client() as second:
                change_direct_readers(second.metadata_store, second.logs, log.name, ["x509:CN=stranger"])
        return give_log(*arguments)

    monkeypatch.setattr(direct_readers, "_give_log", meanwhile)
    found = change_direct_readers(member.metadata_store, member.logs, log.name, [IDENTITY])
    assert found.readers == (IDENTITY, "x509:CN=stranger")
    for name in (READER, STRANGER):
        with place.client(name) as one:
            assert rows(one, log.name) == ROWS.to_pylist()


def test_readers_stay_when_the_cluster_is_protected_again(place: Guarded, member: BookKeeper, log: Log) -> None:
    assert protect(member.metadata_store, member.znodes.root, []) == 0
    with place.client(READER) as reader:
        assert rows(reader, log.name) == ROWS.to_pylist()


def test_a_bookie_that_registers_anew_is_found_by_readers(place: Guarded, log: Log, reader: BookKeeper) -> None:
    bookie = place.cluster.bookies[0]
    bookie.stop()
    bookie.start()
    assert len(reader.list_bookies()) == 3
    assert rows(reader, log.name) == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("world:anyone", r"a reader \(--add\) is 'world:anyone': write it as ZooKeeper does"),
        ("digest:bob:s3cret", r"a reader \(--add\) is 'digest:…': write it as ZooKeeper does"),
        ("nosuch:bob", "the access control is .*nosuch:bob.*: ZooKeeper knows no such identity"),
    ],
)
def test_what_is_no_identity_is_refused(member: BookKeeper, given: str, why: str) -> None:
    log = secured(member)
    with pytest.raises(ConfigError, match=why):
        change_direct_readers(member.metadata_store, member.logs, log.name, [given])


def test_logs_that_cannot_be_read_whole_have_no_readers(member: BookKeeper) -> None:
    log = member.open_log(f"log-{uuid.uuid4().hex}", create=True)
    log.append_rows(ROWS)
    store, logs = member.metadata_store, member.logs
    with pytest.raises(ConfigError, match="1 of its 1 ledgers were written before it was secured"):
        change_direct_readers(store, logs, log.name, [IDENTITY])
    own = list(direct_readers.members(store, member.znodes.root))
    plain = member.open_log(f"log-{uuid.uuid4().hex}", create=True)
    with pytest.raises(ConfigError, match="it is not secured, so its ledgers have no keys"):
        change_direct_readers(store, logs, plain.name, [IDENTITY])
    assert store.readers(member.znodes.log_name(plain.name)) == ()
    with pytest.raises(ConfigError, match="it is a member of the cluster"):
        change_direct_readers(store, logs, plain.name, own[:1])
    shared = secured(member)
    give(member, shared)
    with pytest.raises(ConfigError, match="x509:CN=reader read it directly"):
        shared.set_tier(Tier("file:///nowhere", "a.b"))
