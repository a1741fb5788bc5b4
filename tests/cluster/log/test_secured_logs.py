"""A secured log on real bookies: without its keys nobody reads it there, and with them everything works as before."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, CorruptionError, LedgerFencedError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.wire.codec import (
    decode_read_reply,
    encode_last_add_confirmed_request,
    encode_read_request,
)
from bk_spark.wire.messages import LastAddConfirmedRequest, ReadEnd, ReadRequest, Status
from tests.cluster.bookie.apache_client import Version2, Version3
from tests.cluster.bookie.asked_bookie import KEY, TIMEOUT_S, AskedBookie
from tests.cluster.live_ledgers import BRISK, killed, result_of

ROWS = pa.table({"item": ["apples", "pears", "plums"], "amount": [3, 5, 7]})


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def log(client: BookKeeper) -> Log:
    """Secured, and empty."""
    made = client.open_log(f"log-{uuid.uuid4().hex}", create=True)
    made.secure()
    return made


def ledgers(client: BookKeeper, log: Log) -> list[LedgerMetadata]:
    found = client.ledger_metadata_many([one.ledger_id for one in log.ledgers()])
    assert found
    assert all(one.is_keyed for one in found)
    return found


def bookies_of(cluster: LocalCluster, metadata: LedgerMetadata) -> list[LocalBookie]:
    return [one for one in cluster.bookies if one.bookie_id in metadata.last_fragment.ensemble]


def apache_port(client: BookKeeper, bookie: LocalBookie) -> int:
    [found] = [one for one in client.list_bookies() if one.bookie_id == bookie.bookie_id]
    assert found.address.apache is not None
    return found.address.apache.port


def asked(bookie: LocalBookie, ledger_id: int, key: bytes) -> tuple[int, Status, Status]:
    """How many batches a read gives, how it ends, and the status of a read of the last add confirmed."""
    with grpc.insecure_channel(bookie.address) as channel:
        stub = BookieStub(channel)
        read = ReadRequest(bookie.bookie_id, ledger_id, key, 0, 0, DENSE, 1 << 20)
        *batches, end = (
            decode_read_reply(one.SerializeToString()) for one in stub.Read(encode_read_request(read), timeout=TIMEOUT_S)
        )
        assert isinstance(end, ReadEnd)
        confirmed = LastAddConfirmedRequest(bookie.bookie_id, ledger_id, key)
        reply = stub.ReadLastAddConfirmed(encode_last_add_confirmed_request(confirmed), timeout=TIMEOUT_S)
        return len(batches), end.status, Status(reply.status)


def rows(log: Log, **more: Any) -> list[dict[str, Any]]:
    return log.read_rows(**more).read_all().to_pylist()


def test_who_has_no_key_is_refused_on_both_wires_and_who_has_one_reads(
    wide_cluster: LocalCluster, client: BookKeeper, log: Log
) -> None:
    log.append_rows(ROWS)
    [metadata] = ledgers(client, log)
    for bookie in bookies_of(wide_cluster, metadata):
        refused = (0, Status.UNAUTHORIZED, Status.UNAUTHORIZED)
        assert asked(bookie, metadata.ledger_id, KEY) == refused
        assert asked(bookie, metadata.ledger_id, metadata.master_key[:20] + bytes(8)) == refused
        assert asked(bookie, metadata.ledger_id, metadata.master_key) == (1, Status.OK, Status.OK)
        port = apache_port(client, bookie)
        for apache in (Version2(port), Version3(port)):
            assert apache.read(metadata.ledger_id, 0) == ("UA", b"")
            assert apache.read(metadata.ledger_id, 0, fence=metadata.master_key[:20]) == ("UA", b"")
            apache.close()
        with AskedBookie(bookie) as raw:
            assert raw.add(metadata.ledger_id, 99, b"x") is Status.UNAUTHORIZED
            assert raw.add(metadata.ledger_id, 99, b"x", recovery=True) is Status.UNAUTHORIZED
            assert raw.read(metadata.ledger_id, 0, 0, fence=True) == ({}, Status.UNAUTHORIZED)
    assert rows(log) == ROWS.to_pylist()


def test_a_ledger_without_keys_is_still_read_by_anybody(wide_cluster: LocalCluster, client: BookKeeper) -> None:
    """Old logs stay as they are."""
    plain = client.open_log(f"log-{uuid.uuid4().hex}", create=True)
    plain.append_rows(ROWS)
    metadata = client.ledger_metadata(plain.ledgers()[0].ledger_id)
    assert not metadata.is_keyed
    [bookie, *_] = bookies_of(wide_cluster, metadata)
    assert asked(bookie, metadata.ledger_id, KEY) == (1, Status.OK, Status.OK)


@pytest.mark.parametrize("small", [True, False], ids=["in frames", "over gRPC"])
def test_a_leader_appends_a_tail_follows_and_another_leader_recovers_what_it_left(
    client: BookKeeper, log: Log, wide_cluster: LocalCluster, small: bool
) -> None:
    entry = b"x" * (10 if small else 200_000)
    writer = log.open_writer()
    writer.append_batch([entry] * 5)
    assert ledgers(client, log)
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as other:
        again = other.open_log(log.name)
        with again.open_writer() as leader:
            leader.append(entry)
        assert sum(len(batch) for batch in again.read()) == 6
        assert all(one.is_keyed for one in ledgers(other, again))
    with pytest.raises(LedgerFencedError):
        writer.append(entry)


def test_transactions_compactions_and_lookups_work_as_before(client: BookKeeper, log: Log) -> None:
    with client.transaction() as together:
        together.append_rows(log.name, ROWS)
    log.append_rows(ROWS)
    ledgers(client, log)
    assert rows(log, where="amount > 3") == [one for one in ROWS.to_pylist() if one["amount"] > 3] * 2
    with log.open_row_writer() as writer:
        writer.append({"item": "figs", "amount": 1})
    assert len(rows(log)) == 7
    ledgers(client, log)


def test_a_compaction_by_key_writes_keyed_ledgers(client: BookKeeper, log: Log) -> None:
    for amount in (1, 2):
        log.append_rows(pa.table({"item": ["apples"], "amount": [amount], "gone": [False]}), partition_key="item")
    log.compact_by_key(KeyCompaction(min_age_s=0))
    assert [one["amount"] for one in rows(log)] == [2]
    ledgers(client, log)


def test_lost_copies_are_made_again_and_the_new_bookie_asks_for_the_key(
    wide_cluster: LocalCluster, client: BookKeeper, log: Log
) -> None:
    log.append_rows(ROWS)
    [metadata] = ledgers(client, log)
    leaving = metadata.last_fragment.ensemble[0]
    rereplicator = Rereplicator(client.context, AutoRecoveryConfig(open_fragment_grace_s=0.05, retry_s=0.2))
    assert result_of(client, rereplicator.rereplicate(metadata.ledger_id, {leaving})).is_whole
    [after] = ledgers(client, log)
    assert leaving not in after.last_fragment.ensemble
    for bookie in bookies_of(wide_cluster, after):
        assert asked(bookie, metadata.ledger_id, KEY)[1] is Status.UNAUTHORIZED
        assert asked(bookie, metadata.ledger_id, after.master_key)[1] is Status.OK


def test_a_leaders_ledger_is_recovered_without_one_of_its_bookies(
    wide_cluster: LocalCluster, client: BookKeeper, log: Log
) -> None:
    writer = log.open_writer()
    writer.append_batch([b"%d" % one for one in range(20)])
    [metadata] = ledgers(client, log)
    with killed(bookies_of(wide_cluster, metadata)[0]):
        log.recover()
    assert sum(len(batch) for batch in log.read()) == 20


def test_a_bookie_asks_for_keys_after_a_restart(wide_cluster: LocalCluster, client: BookKeeper, log: Log) -> None:
    log.append_rows(ROWS)
    [metadata] = ledgers(client, log)
    bookie = bookies_of(wide_cluster, metadata)[0]
    bookie.stop()
    bookie.start()
    assert asked(bookie, metadata.ledger_id, KEY)[1] is Status.UNAUTHORIZED
    assert asked(bookie, metadata.ledger_id, metadata.master_key)[1] is Status.OK


def test_a_password_has_no_place_in_a_secured_log(client: BookKeeper, log: Log) -> None:
    with pytest.raises(ConfigError, match="is secured, and its ledgers have keys: leave the password out"):
        client.append_rows(log.name, ROWS, password=b"p")
    log.append_rows(ROWS)
    [metadata] = ledgers(client, log)
    with pytest.raises(UnauthorizedAccessError):
        client.open_ledger(metadata.ledger_id, b"p")
    assert client.open_ledger(metadata.ledger_id).last_add_confirmed >= 0


def test_without_the_secret_what_is_there_is_read_and_nothing_is_written(client: BookKeeper, log: Log) -> None:
    log.append_rows(ROWS)
    secret = client.logs.names.paths(log.uid).secret
    kept = client.metadata_store.get(secret)
    client.metadata_store.delete(secret, kept.version)
    assert rows(log) == ROWS.to_pylist()
    with pytest.raises(CorruptionError, match=f"so nobody writes to log '{log.name}': take it from a backup"):
        log.append_rows(ROWS)
    metadata = client.ledger_metadata(log.ledgers()[0].ledger_id)
    with BookKeeper(client.metadata_store.uri, BRISK) as fresh, pytest.raises(CorruptionError):
        fresh.context.secrets.writable(metadata)


def test_no_key_is_in_a_log_or_an_error(
    wide_cluster: LocalCluster, client: BookKeeper, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    log.append_rows(ROWS)
    [metadata] = ledgers(client, log)
    writable = client.context.secrets.writable(metadata)
    secret = client.metadata_store.get(client.logs.names.paths(log.uid).secret).value
    shown = [metadata.password, writable.write_proof, bytes.fromhex(re.findall(rb"[0-9a-f]{64}", secret)[0].decode())]
    for bookie in bookies_of(wide_cluster, metadata):
        asked(bookie, metadata.ledger_id, KEY)
    texts = [caplog.text, repr(metadata), repr(writable), repr(log), *(_logs(one) for one in wide_cluster.bookies)]
    for text in texts:
        assert not any(form in text for one in shown for form in (one.hex(), repr(one)[2:-1]))


def _logs(bookie: LocalBookie) -> str:
    home = Path(bookie.data_dir).parent
    return "".join(one.read_text(errors="replace") for one in home.glob("log*") if one.is_file())
