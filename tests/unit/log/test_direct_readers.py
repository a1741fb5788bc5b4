"""What a log makes for its direct readers, whatever was under way when they changed. Ref: DESIGN.md, "Who may do what"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.entries.log_secret import decode_secret, encode_secret
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.log import direct_readers
from bk_spark.log.direct_readers import DirectReaders, set_readers
from bk_spark.log.secure_log import secure
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import BadVersionError, Create, TransactionFailedError
from tests.unit.log.log_requests import append

NAME, ANN, BOB = "orders", "x509:CN=ann", "sasl:bob"


@pytest.fixture
def uid(world) -> str:
    """Of a secured log without content."""
    world.store.ensure_path(world.znodes.read_only)
    uid = world.logs.open(NAME, create=True)
    secure(world.logs, NAME, uid, lambda: None)
    return uid


def write(world, logs=None) -> int:
    logs = logs or world.logs
    job = logs.jobs.begin(NAME)
    ledger = world.job_ledger(job, logs=logs)
    logs.commit(job, append(ledger))
    return ledger.ledger_id


def readable(world, uid: str, who: str) -> set[str]:
    """What of the log's own an identity may read, from the log's path on, and the ledgers."""
    found = {path for path in everything(world.store, world.znodes.root) if who in world.store.readers(path)}
    return {path.removeprefix(world.znodes.log(uid) + "/").removeprefix(world.znodes.root + "/") for path in found}


def everything(store, path: str) -> list[str]:
    return [path] + [below for name in store.children(path) for below in everything(store, f"{path}/{name}")]


def expected(world, uid: str, *ledger_ids: int, checkpoint: int | None = None) -> set[str]:
    names = {f"bk_spark/logs/names/{NAME}", "head"} | {
        world.znodes.ledger(one).removeprefix(world.znodes.root + "/") for one in ledger_ids
    }
    for version in world.logs.reader.versions(NAME, uid, 1, world.logs.names.head(NAME, uid).version):
        paths = world.paths(uid)
        records = [paths.version(version.version), *(paths.job(version.job_id).page(one) for one in range(version.pages))]
        names |= {one.removeprefix(paths.root + "/") for one in records}
    if checkpoint is not None:
        names |= {"checkpoints/0", f"checkpoints/0/{checkpoint}", f"checkpoints/0/{checkpoint}/0"}
    return names


def test_what_is_there_and_what_comes_is_for_the_readers(world, uid):
    before = write(world)
    world.logs.write_checkpoint(NAME, uid, 1)
    assert set_readers(world.logs, NAME, [ANN]) == DirectReaders(NAME, (ANN,), 8)
    after = write(world)
    world.logs.write_checkpoint(NAME, uid, 2)
    there = expected(world, uid, before, after, checkpoint=1) | {"checkpoints/0/2", "checkpoints/0/2/0"}
    assert readable(world, uid, ANN) == there
    assert set_readers(world.logs, NAME, [ANN]).changed == 0


def test_who_is_removed_reads_nothing_and_others_stay(world, uid):
    ledger = write(world)
    set_readers(world.logs, NAME, [ANN, BOB])
    assert set_readers(world.logs, NAME, remove=[ANN]).readers == (BOB,)
    assert readable(world, uid, ANN) == set()
    assert readable(world, uid, BOB) == expected(world, uid, ledger)
    assert set_readers(world.logs, NAME, remove=[BOB]).readers == ()
    assert readable(world, uid, BOB) == set()
    head = world.store.get(world.paths(uid).head).value
    assert b'"format":6' in head
    assert b"readers" not in head


def test_a_ledger_is_not_created_for_the_readers_of_before(world, uid):
    jobs = world.logs.jobs
    job = jobs.begin(NAME)
    secret = jobs.ensure(job)
    changes = jobs.creation_of_ledger(job, 7, secret)
    set_readers(world.logs, NAME, [ANN])
    with pytest.raises(TransactionFailedError) as refused:
        world.store.transaction([Create(f"{world.znodes.root}/x"), *changes])
    assert isinstance(refused.value.reason, BadVersionError)
    assert jobs.has_other_readers(job, refused.value)
    assert jobs.ensure(job).readers == (ANN,)


@pytest.mark.parametrize("add", [True, False])
def test_a_commit_that_is_on_its_way_is_made_for_the_readers_of_now(world, uid, add):
    if not add:
        set_readers(world.logs, NAME, [ANN])
    store, logs = world.scripted()
    change = {"add" if add else "remove": [ANN]}
    store.script = [store.first(lambda: set_readers(world.logs, NAME, **change))]
    ledger = write(world, logs)
    assert readable(world, uid, ANN) == (expected(world, uid, ledger) if add else set())


def test_a_checkpoint_that_is_being_written_is_for_the_readers_of_now(world, uid):
    ledger = write(world)
    store, logs = world.scripted()
    create = store.store.create

    def create_and_give(path: str, *arguments, **options):
        create(path, *arguments, **options)
        if path.endswith("checkpoints/0/1/0"):
            set_readers(world.logs, NAME, [ANN])
            world.store.share([path], ())  # as if the pass had come before

    store.store.create = create_and_give
    logs.write_checkpoint(NAME, uid, 1)
    assert readable(world, uid, ANN) == expected(world, uid, ledger, checkpoint=1)


def test_a_ledger_of_a_job_that_has_not_committed_is_given_too(world, uid):
    job = world.logs.jobs.begin(NAME)
    ledger = world.job_ledger(job)
    set_readers(world.logs, NAME, [ANN])
    world.logs.commit(job, append(ledger))
    assert readable(world, uid, ANN) == expected(world, uid, ledger.ledger_id)


def test_of_two_changes_at_once_both_are_made_whoever_gives_last(world, uid, monkeypatch):
    ledger = write(world)
    give, begun = direct_readers._give_log, []

    def meanwhile(*arguments):
        if not begun:
            begun.append(True)
            set_readers(world.log_store(world.new_session()), NAME, [BOB])
        return give(*arguments)

    monkeypatch.setattr(direct_readers, "_give_log", meanwhile)
    assert set_readers(world.logs, NAME, [ANN]).readers == (ANN, BOB)
    assert readable(world, uid, ANN) == readable(world, uid, BOB) == expected(world, uid, ledger)


def test_a_log_that_is_not_secured_or_has_too_many_readers_is_refused(world, uid):
    world.logs.open("plain", create=True)
    with pytest.raises(ConfigError, match="so its ledgers have no keys to read with: 'bk-spark log secure plain'"):
        set_readers(world.logs, "plain", [ANN])
    many = [f"sasl:user-{number}" for number in range(direct_readers.MAX_READERS + 1)]
    with pytest.raises(ConfigError, match="the number of direct readers of log 'orders' is 101: there may be 100"):
        set_readers(world.logs, NAME, many)
    assert set_readers(world.logs, NAME, many[1:]).readers == tuple(many[1:])


def test_without_its_secret_a_log_gets_no_readers(world, uid):
    world.store.delete(world.paths(uid).secret, 0)
    with pytest.raises(CorruptionError, match="take it from a backup"):
        set_readers(world.logs, NAME, [ANN])


def test_head_and_secret_with_readers_have_a_format_that_older_releases_refuse():
    head = Head(NAME, is_secured=True)
    assert b'"format":6' in head.encode()
    shared = replace(head, readers=(ANN, BOB))
    assert b'"format":7' in shared.encode()
    assert Head.decode("it", shared.encode()) == shared
    assert decode_secret("uid", encode_secret(bytes(32))).readers == ()
    stored = encode_secret(bytes(range(32)), (ANN, BOB))
    found = decode_secret("uid", stored, 3)
    assert (found.secret, found.readers, found.version) == (bytes(range(32)), (ANN, BOB), 3)
    assert "00010203" not in repr(found)
    assert "\\x01" not in repr(found)
    with pytest.raises(FormatVersionError):
        decode_secret("uid", stored.replace(b'"format":7', b'"format":8'))
    for damaged in (stored.replace(b'["x509', b'[1,"x509'), stored.replace(b'["x509:CN=ann","sasl:bob"]', b"7")):
        with pytest.raises(CorruptionError):
            decode_secret("uid", damaged)
