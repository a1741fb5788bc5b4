"""A secured log takes keyed ledgers alone, whatever was under way when it was secured. Ref: DESIGN.md, "Who may do what"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.client.driver.log_secrets import LogSecrets
from bk_spark.config import LedgerOptions
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, LedgerFencedError
from bk_spark.log.secure_log import SecuredLog, secure
from bk_spark.log.stored.values import CommittedLedger, Head
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from tests.unit.log.log_requests import append, ids, overwrite, replacement, write

NAME = "orders"


@pytest.fixture(autouse=True)
def _cluster_of_our_bookies(world):
    world.store.ensure_path(world.znodes.read_only)


def secured(world, logs=None) -> SecuredLog:
    logs = logs or world.logs

    def end_leader():
        logs.commit(logs.jobs.begin(NAME), append())

    return secure(logs, NAME, world.logs.names.uid(NAME), end_leader)


def head(world) -> Head:
    return world.logs.names.head(NAME, world.logs.names.uid(NAME))


def test_ledgers_that_are_written_afterwards_are_keyed_and_those_before_stay(world):
    job = world.logs.jobs.begin(NAME)
    old = world.job_ledger(job)
    world.logs.commit(job, append(old))
    assert secured(world) == SecuredLog(NAME, False, 1, 1)
    job = world.logs.jobs.begin(NAME)
    new = world.job_ledger(job)
    world.logs.commit(job, append(new))
    assert (world.metadata(old).is_keyed, world.metadata(new).is_keyed) == (False, True)
    assert world.listed(NAME) == ids(old, new)
    assert secured(world) == SecuredLog(NAME, True, 2, 1)
    job = world.logs.jobs.begin(NAME)
    world.logs.commit(job, replacement([old], world.job_ledger(job)))
    assert secured(world).ledgers_without_key == 0


@pytest.mark.parametrize("request_of", [append, overwrite])
def test_a_write_that_was_under_way_is_refused_and_succeeds_when_it_is_run_again(world, request_of):
    world.logs.open(NAME, create=True)
    job = world.logs.jobs.begin(NAME)
    ledger = world.job_ledger(job)
    secured(world)
    with pytest.raises(ConfigError, match=rf"given to log 'orders' is {ledger.ledger_id}: it has no key.*to be run again"):
        world.logs.commit_or_abort(job, request_of(ledger))
    assert not world.ledger_exists(ledger)
    assert world.listed(NAME) == []
    write(world, NAME, request=request_of)
    assert len(world.listed(NAME)) == 1


def test_a_commit_that_is_on_its_way_when_the_log_is_secured_is_refused(world):
    """The head's version has changed, so it is tried again, and sees the secured head."""
    world.logs.open(NAME, create=True)
    store, logs = world.scripted()
    job = logs.jobs.begin(NAME)
    ledger = world.job_ledger(job, logs=logs)
    store.script = [store.first(lambda: secured(world))]
    with pytest.raises(ConfigError, match="it has no key"):
        logs.commit(job, append(ledger))
    assert world.listed(NAME) == []


def test_a_job_that_found_no_log_gets_nothing_into_the_secured_one_that_was_made_meanwhile(world):
    job = world.logs.jobs.begin(NAME)
    ledger = world.job_ledger(job)
    world.logs.open(NAME, create=True)
    secured(world)
    with pytest.raises(ConfigError, match="it has no key"):
        world.logs.commit(job, append(ledger))


def test_ledgers_of_others_are_not_taken(world):
    world.logs.open(NAME, create=True)
    secured(world)
    with pytest.raises(ConfigError, match="it has no key"):
        write(world, NAME, world.plain_ledger())
    assert head(world).version == 0


def test_a_keyed_ledger_is_of_one_log_for_life(world):
    world.logs.open(NAME, create=True)
    secured(world)
    job = world.logs.jobs.begin(NAME)
    ledger = world.job_ledger(job)
    world.logs.open("others", create=True)
    with pytest.raises(ConfigError, match="its keys come from the secret of another log"):
        write(world, "others", ledger)


def test_a_leader_with_a_ledger_without_a_key_is_displaced_and_keeps_what_it_confirmed(world):
    world.logs.open(NAME, create=True)
    job = world.logs.jobs.begin(NAME)
    opened = world.open_ledger(job)
    version = world.logs.commit(job, append(opened=opened))
    secured(world)
    assert world.recovered == [opened]
    assert world.listed(NAME) == [opened]
    job = world.logs.jobs.begin(NAME)
    keyed = world.open_ledger(job)
    with pytest.raises(LedgerFencedError):
        world.logs.commit(job, append(opened=keyed, leader_epoch=version.epoch))


def test_a_leader_whose_ledger_is_keyed_goes_on_when_the_command_is_run_again(world):
    world.logs.open(NAME, create=True)
    secured(world)
    job = world.logs.jobs.begin(NAME)
    world.logs.commit(job, append(opened=world.open_ledger(job)))
    secured(world)
    assert not world.recovered


def test_a_leader_cannot_open_a_ledger_without_a_key(world):
    world.logs.open(NAME, create=True)
    job = world.logs.jobs.begin(NAME)
    opened = world.open_ledger(job)
    secured(world)
    with pytest.raises(ConfigError, match="it has no key"):
        world.logs.commit(job, append(opened=opened))


def test_two_at_once_make_one_secret(world):
    """Of two transactions one is refused by the head's version."""
    world.logs.open(NAME, create=True)
    paths = world.paths(world.logs.names.uid(NAME))
    store, logs = world.scripted()
    made = []

    def other_first(changes):
        secured(world)
        made.append(world.store.get(paths.secret).value)

    original = store.transaction

    def transaction(changes):
        if not made:
            other_first(changes)
        original(changes)

    store.transaction = transaction
    assert not secured(world, logs).was_secured
    assert [world.store.get(paths.secret).value] == made
    assert head(world).is_secured


def test_a_log_with_a_password_is_refused(world):
    metadata = world.new_metadata()
    metadata = replace(metadata, password=b"p").closed_at(9, 1000)
    world.store.create(world.znodes.ledger(metadata.ledger_id), metadata.encode(), make_parents=True)
    write(world, NAME, CommittedLedger.of_entries(metadata))
    with pytest.raises(ConfigError, match=r"log to secure is 'orders': ledger \d+ has a password"):
        secured(world)
    assert not head(world).is_secured


def test_a_cluster_with_a_bookie_of_apaches_is_refused(world, monkeypatch):
    world.logs.open(NAME, create=True)
    apache = type("Registered", (), {"bookie_id": "apache:3181", "is_apache": True})
    monkeypatch.setattr("bk_spark.log.secure_log.list_bookies", lambda store, znodes: [apache])
    with pytest.raises(ConfigError, match=r"apache:3181.*lets everybody read"):
        secured(world)
    assert not head(world).is_secured


def test_older_releases_refuse_a_secured_log(world):
    world.logs.open(NAME, create=True)
    assert b'"format":2' in head(world).encode()
    secured(world)
    assert b'"format":6' in head(world).encode()
    assert b'"secured":true' in head(world).encode()


def test_the_secret_goes_with_the_log_and_a_new_log_of_the_name_has_none(world):
    world.logs.open(NAME, create=True)
    secured(world)
    secret = world.paths(world.logs.names.uid(NAME)).secret
    write(world, NAME)
    world.logs.deleter.delete(NAME)
    assert world.store.get_many([secret]) == [None]
    world.logs.open(NAME, create=True)
    assert not head(world).is_secured
    job = world.logs.jobs.begin(NAME)
    assert not world.metadata(world.job_ledger(job)).is_keyed


# Keys of ledgers that others made


@pytest.fixture
def keyed(world) -> LedgerMetadata:
    world.logs.open(NAME, create=True)
    secured(world)
    return world.metadata(world.job_ledger(world.logs.jobs.begin(NAME)))


def test_the_key_for_writes_is_not_stored_with_the_ledger_and_follows_from_the_secret(world, keyed):
    assert not keyed.write_proof
    writable = LogSecrets(world.store, world.znodes).writable(keyed)
    assert writable == keyed, "the key is no part of the stored value"
    assert writable.master_key != keyed.master_key
    assert writable.read_key == keyed.read_key == keyed.master_key
    assert writable.master_key[20:] == keyed.master_key[20:]
    assert writable.write_proof not in keyed.encode()
    assert LogSecrets(world.store, world.znodes).writable(keyed).master_key == writable.master_key


def test_a_ledger_without_keys_needs_no_secret(world):
    plain = world.new_metadata({"bk_spark.log": b"nowhere"})
    assert LogSecrets(world.store, world.znodes).writable(plain) is plain


@pytest.mark.parametrize("uid", ["gone", "", "../../others", "a/b", "é"])
def test_without_the_secret_nobody_writes_and_the_error_says_so(world, keyed, uid):
    lost = keyed.with_custom("bk_spark.log", uid.encode())
    with pytest.raises(CorruptionError, match=r"nobody writes to ledger \d+: take it from a backup"):
        LogSecrets(world.store, world.znodes).writable(lost)


def test_a_secret_that_is_not_the_ledgers_is_noticed(world, keyed):
    world.logs.open("others", create=True)
    uid = world.logs.names.uid("others")
    secure(world.logs, "others", uid, lambda: None)
    with pytest.raises(CorruptionError, match="does not follow from its log's secret"):
        LogSecrets(world.store, world.znodes).writable(keyed.with_custom("bk_spark.log", uid.encode()))


@pytest.mark.parametrize("value", [b"", b"{}", b'{"format":6,"secret":"00"}', b'{"format":"6","secret":"%s"}' % (b"0" * 64)])
def test_a_secret_that_cannot_be_understood_is_damage_and_is_not_shown(world, keyed, value):
    path = world.paths(world.logs.names.uid(NAME)).secret
    world.store.set(path, value, world.store.get(path).version)
    with pytest.raises(CorruptionError, match="cannot be understood"):
        LogSecrets(world.store, world.znodes).writable(keyed)
    with pytest.raises(CorruptionError):
        world.logs.jobs.ensure(world.logs.jobs.begin(NAME))


def test_a_newer_secret_is_refused_by_its_version(world, keyed):
    path = world.paths(world.logs.names.uid(NAME)).secret
    value = b'{"format":8,"secret":"%s"}' % (b"0" * 64)
    world.store.set(path, value, world.store.get(path).version)
    with pytest.raises(FormatVersionError):
        LogSecrets(world.store, world.znodes).writable(keyed)


def test_keys_are_in_no_text(keyed, world):
    writable = LogSecrets(world.store, world.znodes).writable(keyed)
    assert "write_proof" not in repr(writable)
    assert "password" not in repr(writable)


# The stored value


def test_the_value_of_a_keyed_ledger_has_a_version_that_others_refuse(keyed):
    assert keyed.encode().startswith(b"BookieMetadataFormatVersion\t4\n")
    assert LedgerMetadata.decode(keyed.ledger_id, keyed.encode()) == keyed
    assert keyed.closed_at(9, 1000).is_keyed
    as_open = keyed.encode().replace(b"\t4\n", b"\t3\n")
    assert not LedgerMetadata.decode(keyed.ledger_id, as_open).is_keyed


def test_a_negative_token_of_others_does_not_make_a_ledger_keyed_and_is_not_shown_to_bookies():
    made = new_ledger(7, LedgerOptions(), ("b1", "b2", "b3"), created_ms=1, creator_token=5)
    foreign = LedgerMetadata.decode(7, replace(made, creator_token=-5).encode())
    assert (foreign.is_keyed, foreign.creator_token, foreign.master_key[20:]) == (False, -5, bytes(8))


def test_a_keyed_ledger_without_its_token_is_damaged(keyed):
    with pytest.raises(CorruptionError, match="a keyed ledger's is negative"):
        replace(keyed, creator_token=5)
