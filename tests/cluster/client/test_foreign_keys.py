"""A bookie that holds ids under a foreign key, and one that is told something else about an entry. Protocol rules 24 and 33."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import DigestType
from bk_spark.entries.batch import BatchHeader, EncodedBatch
from bk_spark.entries.crc import crc32c
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.wire.codec import encode_add_request
from bk_spark.wire.messages import HIGHEST_LEDGER_ID, AddRequest, AdminOperation, Status
from tests.cluster.bookie.asked_bookie import KEY, TIMEOUT_S, AskedBookie
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads

SECRET = b"another password than AskedBookie's"
ENTRIES = [b"%d" % one for one in range(20)]
SQUATTED = 29


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def squatted(wide_cluster: LocalCluster) -> LocalBookie:
    return wide_cluster.bookies[1]


@pytest.fixture
def writers(client: BookKeeper, squatted: LocalBookie) -> list[WriteHandle]:
    """Of ledgers that had no entry yet when somebody else added to them at ``squatted``."""
    made = [client.create_ledger(3, 3, 2, password=SECRET) for _ in range(SQUATTED)]
    with AskedBookie(squatted) as raw:
        for writer in made:
            assert raw.add(writer.ledger_id, 0, b"x") is Status.OK
    return made


def test_ids_that_were_not_given_out_cannot_be_squatted_on(client: BookKeeper, squatted: LocalBookie) -> None:
    with client.create_ledger(3, 3, 2) as writer, AskedBookie(squatted) as raw:
        for ledger_id in (*range(writer.ledger_id + 1, writer.ledger_id + 1 + SQUATTED), 2**62):
            assert raw.add(ledger_id, 0, b"x") is Status.READ_ONLY
            assert raw.add(ledger_id, 0, b"x", recovery=True) is Status.READ_ONLY
            assert raw.read(ledger_id, 0, 0, fence=True) == ({}, Status.UNKNOWN)
        assert raw.administer(AdminOperation.BOOKIE_STATUS).figures[HIGHEST_LEDGER_ID] <= writer.ledger_id
    for _ in range(SQUATTED):
        with client.create_ledger(3, 3, 2, password=SECRET) as writer:
            writer.append_batch(ENTRIES)


def test_ledgers_whose_ids_one_bookie_holds_under_a_foreign_key_are_written_recovered_read_and_copied(
    client: BookKeeper, squatted: LocalBookie, writers: list[WriteHandle]
) -> None:
    rereplicator = Rereplicator(client.context, AutoRecoveryConfig(open_fragment_grace_s=0.05, retry_s=0.2))
    closed, dying, empty = [one for one in writers if squatted.bookie_id in _named(client, one.ledger_id)][:3]
    with closed:
        closed.append_batch(ENTRIES)
    dying.append_batch(ENTRIES)  # and its process dies
    expected = {closed.ledger_id: ENTRIES, dying.ledger_id: ENTRIES, empty.ledger_id: []}
    _assert_read(client, expected)
    leaving = {one: next(name for name in _named(client, one) if name != squatted.bookie_id) for one in expected}
    _until(lambda: _copied(client, rereplicator, leaving))
    assert not [one for one in expected if leaving[one] in _named(client, one)]
    _assert_read(client, expected)
    with AskedBookie(squatted) as raw:
        _until(lambda: raw.administer(AdminOperation.BOOKIE_STATUS).figures["foreign_ledgers_let_go"] > 0)


def _assert_read(client: BookKeeper, expected: dict[int, list[bytes]]) -> None:
    for ledger_id, entries in expected.items():
        with client.open_ledger(ledger_id, SECRET) as reader:
            assert payloads(reader) == entries


def _copied(client: BookKeeper, rereplicator: Rereplicator, leaving: dict[int, str]) -> bool:
    """Whether all are whole after a try at each, side by side."""
    tries = [client.context.submit(rereplicator.rereplicate(one, {bookie_id})) for one, bookie_id in leaving.items()]
    done = [one.result(DEADLINE_S) for one in tries]
    return all(one.is_whole for one in done)


def test_a_second_add_with_other_bytes_and_an_add_of_no_batch_are_refused(
    wide_cluster: LocalCluster, client: BookKeeper
) -> None:
    writer = client.create_ledger(3, 3, 2)
    writer.append(b"one")
    _, second = writer.append(b"two"), writer.append(b"abc")
    bookie = next(one for one in wide_cluster.bookies if one.bookie_id == _named(client, writer.ledger_id)[0])
    with AskedBookie(bookie) as raw:
        assert raw.add(writer.ledger_id, 1, b"six") is Status.BAD_REQUEST
        assert raw.add(writer.ledger_id, 1, b"six", recovery=True) is Status.BAD_REQUEST
        assert raw.read(writer.ledger_id, 1, 1) == ({1: b"two"}, Status.OK)
    assert _status_of_no_batch(bookie, writer.ledger_id, second + 1) is Status.BAD_REQUEST
    writer.append(b"end")
    writer.close()
    with client.open_ledger(writer.ledger_id) as reader:
        assert payloads(reader) == [b"one", b"two", b"abc", b"end"]


def _status_of_no_batch(bookie: LocalBookie, ledger_id: int, entry_id: int) -> Status:
    body = b"no batch" * 100
    header = BatchHeader(ledger_id, entry_id, entry_id, DENSE, entry_id - 1, 0, DigestType.CRC32C)
    request = AddRequest(1, bookie.bookie_id, KEY, EncodedBatch(header, body, crc32c(body)))
    with grpc.insecure_channel(bookie.address) as channel:
        [reply] = BookieStub(channel).Add(iter([encode_add_request(request)]), timeout=TIMEOUT_S)
        return Status(reply.status)


def _named(client: BookKeeper, ledger_id: int) -> tuple[str, ...]:
    return client.ledger_metadata(ledger_id).last_fragment.ensemble


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
