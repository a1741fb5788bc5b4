"""The client against real bookies and a real ZooKeeper."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import MAX_CREATE_TRIES, BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import MAX_ENTRY_BYTES, ClientConfig, DigestType
from bk_spark.errors import (
    BookieUnavailableError,
    ConfigError,
    EntryTooLargeError,
    LedgerClosedError,
    MetadataUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UnauthorizedAccessError,
)
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.metadata.store import StoreChange
from tests.cluster.live_ledgers import killed, payloads, suspended

PATIENT = ClientConfig(read_timeout_s=1.0, add_timeout_s=1.5, explicit_lac_s=60.0)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, PATIENT) as client:
        yield client


def wait_for_all(futures: list[Future[int]]) -> None:
    for future in futures:
        future.result()


@pytest.mark.parametrize(("e", "w", "a"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (3, 1, 1)])
@pytest.mark.parametrize("digest_type", DigestType)
def test_what_is_appended_is_read_back_in_order(client: BookKeeper, e: int, w: int, a: int, digest_type: DigestType) -> None:
    with client.create_ledger(e, w, a, digest_type, password=b"secret", custom_metadata={"owner": b"me"}) as writer:
        assert writer.append(b"first") == 0
        assert writer.append_batch([b"second", b"", b"x" * 1000]) == (1, 3)
        assert writer.append_batch(pa.array([b"%d" % i for i in range(5000)], pa.binary())) == (4, 5003)
        futures = [writer.append_async(b"async %d" % i) for i in range(1000)]
        assert [future.result() for future in futures] == list(range(5004, 6004))
        assert writer.last_add_confirmed == writer.last_add_pushed == 6003
    expected = [
        b"first",
        b"second",
        b"",
        b"x" * 1000,
        *(b"%d" % i for i in range(5000)),
        *(b"async %d" % i for i in range(1000)),
    ]
    with client.open_ledger(writer.ledger_id, b"secret") as reader:
        assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 6003, sum(map(len, expected)))
        assert payloads(reader) == expected
        assert reader.metadata.custom("owner") == b"me"
        batches = list(reader.read(3, 4503))
        assert [i for b in batches for i in b.column("entry_id").to_pylist()] == list(range(3, 4504))
        lengths = [n for b in batches for n in b.column("length").to_pylist()]
        assert lengths == [sum(map(len, expected[: i + 1])) for i in range(3, 4504)]


def test_a_large_batch_is_cut_and_confirmed_as_one_call(client: BookKeeper) -> None:
    payload = b"z" * 1_000_000
    with client.create_ledger() as writer:
        assert writer.append_batch([payload] * 12) == (0, 11)
        assert writer.append_batch([b"y" * MAX_ENTRY_BYTES]) == (12, 12)
        with pytest.raises(EntryTooLargeError, match=str(MAX_ENTRY_BYTES + 1)):
            writer.append(b"y" * (MAX_ENTRY_BYTES + 1))
    reader = client.open_ledger(writer.ledger_id)
    assert [len(p) for p in payloads(reader)] == [1_000_000] * 12 + [MAX_ENTRY_BYTES]


def test_appends_from_many_threads_are_all_confirmed_with_ids_of_their_own(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        ids: list[int] = []

        def append() -> None:
            ids.extend(writer.append(b"x") for _ in range(50))

        threads = [threading.Thread(target=append) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ids) == list(range(400))


def test_a_reader_without_recovery_tails_as_far_as_the_writer_told_the_bookies(client: BookKeeper) -> None:
    """The LAC that entries carry trails by one until the next entry. Ref: situations 26 and 48."""
    with client.create_ledger() as writer:
        writer.append(b"a")
        reader = client.open_ledger(writer.ledger_id, recover=False)
        assert (reader.is_closed, reader.last_add_confirmed) == (False, -1)
        writer.append(b"b")
        assert reader.read_last_add_confirmed() == 0
        assert payloads(reader) == [b"a"]
        with pytest.raises(NoSuchEntryError, match="no entry 1"):
            list(reader.read(0, 1))
        assert writer.append(b"c") == 2


def _alone_on(client: BookKeeper, bookie_id: str) -> ReadHandle:
    """A closed ledger of one entry, which that bookie has."""
    while True:
        with client.create_ledger(1, 1, 1) as writer:
            writer.append(b"x")
        if writer.metadata.last_fragment.ensemble == (bookie_id,):
            return client.open_ledger(writer.ledger_id)


def _append_quickly_in_vain(client: BookKeeper, writer: WriteHandle, killed: LocalBookie) -> None:
    started = time.monotonic()
    with pytest.raises(NotEnoughBookiesError, match=killed.bookie_id):
        wait_for_all([writer.append_async(b"in vain") for _ in range(10)])
    assert time.monotonic() - started < 30
    writer.close()
    assert client.ledger_metadata(writer.ledger_id).last_entry_id == 0
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"before"]


def test_one_killed_bookie_of_three_stops_neither_writer_nor_reader_and_with_two_a_writer_fails_quickly_and_names_them(
    client: BookKeeper, cluster: LocalCluster
) -> None:
    """What one of them alone has is unknown meanwhile, not missing."""
    first, second, _ = cluster.bookies
    alone = _alone_on(client, first.bookie_id)
    with client.create_ledger() as writer, client.create_ledger() as doomed:
        writer.append(b"before")
        doomed.append(b"before")
        with killed(first):
            assert [writer.append(b"during %d" % i) for i in range(20)] == list(range(1, 21))
            writer.close()
            assert len(payloads(client.open_ledger(writer.ledger_id))) == 21
            with pytest.raises(BookieUnavailableError, match=first.bookie_id):
                list(alone.read(0, 0))
            with killed(second):
                _append_quickly_in_vain(client, doomed, first)
    assert payloads(alone) == [b"x"]


def test_one_suspended_bookie_of_three_stops_neither_writer_nor_reader(client: BookKeeper, cluster: LocalCluster) -> None:
    """The window is smaller than what is written, so the writer must leave the silent bookie behind. Ref: situation 20."""
    with client.create_ledger() as writer:
        writer.append(b"before")
        with suspended(cluster.bookies[1]):
            started = time.monotonic()
            wait([writer.append_batch_async([b"x" * 1_000_000] * 4) for _ in range(10)])
            writer.close()
            assert len(payloads(client.open_ledger(writer.ledger_id))) == 41
            assert time.monotonic() - started < 40


def test_a_wrong_password_is_refused_for_reading(client: BookKeeper) -> None:
    with client.create_ledger(password=b"right") as writer:
        writer.append(b"x")
    with pytest.raises(UnauthorizedAccessError, match=f"ledger {writer.ledger_id}"):
        client.open_ledger(writer.ledger_id, b"wrong")


def test_bookies_check_the_password_themselves(client: BookKeeper) -> None:
    """A client that does not know the password cannot go around the metadata."""
    with client.create_ledger(password=b"right") as writer:
        writer.append(b"x")
    forged = dataclasses.replace(client.ledger_metadata(writer.ledger_id), password=b"wrong")
    with pytest.raises(BookieUnavailableError, match="UNAUTHORIZED"):
        list(ReadHandle(client.context, client._ledgers, forged).read(0, 0))


@pytest.mark.parametrize(("sizes", "word"), [((2, 3, 2), "writeQuorum"), ((3, 2, 3), "ackQuorum"), ((0, 0, 0), "ensembleSize")])
def test_sizes_out_of_order_are_refused(client: BookKeeper, sizes: tuple[int, int, int], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        client.create_ledger(*sizes)


def test_more_bookies_than_there_are_cannot_be_had(client: BookKeeper) -> None:
    with pytest.raises(NotEnoughBookiesError, match="needs 4 bookies and 3 can be used"):
        client.create_ledger(4, 3, 2)


def test_an_unknown_digest_type_is_refused(client: BookKeeper) -> None:
    with pytest.raises(ConfigError, match="one of CRC32, HMAC, CRC32C, DUMMY"):
        client.create_ledger(digest_type="MD5")


def test_missing_ledgers_are_called_missing(client: BookKeeper) -> None:
    for ledger_id in (123456, -1, 10**12):
        with pytest.raises(NoSuchLedgerError, match=str(ledger_id)):
            client.open_ledger(ledger_id)
    with pytest.raises(NoSuchLedgerError):
        client.delete_ledger(123456)


def test_ledgers_are_listed_and_deleted(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        writer.append(b"x")
    assert writer.ledger_id in list(client.list_ledgers())
    client.delete_ledger(writer.ledger_id)
    assert writer.ledger_id not in list(client.list_ledgers())
    with pytest.raises(NoSuchLedgerError):
        client.open_ledger(writer.ledger_id)


def test_a_ledger_that_a_log_adopts_while_it_is_to_be_deleted_stays_in_the_log(
    client: BookKeeper, cluster: LocalCluster
) -> None:
    """The log takes it between the look at its metadata and the deletion."""
    with client.create_ledger() as writer:
        writer.append_batch([b"a", b"b"])
    log = client.open_log(f"adopts-{writer.ledger_id}", create=True)
    with BookKeeper(cluster.metadata_uri) as cleaner:
        look = cleaner.ledger_metadata

        def look_and_be_overtaken(ledger_id: int) -> LedgerMetadata:
            found = look(ledger_id)
            if not log.ledgers():
                log.append_ledgers([ledger_id])
            return found

        cleaner.ledger_metadata = look_and_be_overtaken  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match="it belongs to the log"):
            cleaner.delete_ledger(writer.ledger_id)
    assert [payload for batch in log.read() for payload in batch.column("payload").to_pylist()] == [b"a", b"b"]


def test_close_ends_the_ledger_once_and_for_all(client: BookKeeper) -> None:
    """Ref: situation 17."""
    writer = client.create_ledger()
    writer.append(b"x")
    threads = [threading.Thread(target=writer.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    metadata = client.ledger_metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 0)
    with pytest.raises(LedgerClosedError):
        writer.append(b"y")


def test_ledgers_made_at_once_have_ids_of_their_own(client: BookKeeper) -> None:
    ids: list[int] = []
    threads = [threading.Thread(target=lambda: ids.append(client.create_ledger().ledger_id)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 16


def test_a_creation_that_is_lost_is_made_again_a_bounded_number_of_times(
    client: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under an id of its own each time: the lost one may still arrive. Ref: protocol rule 31."""
    transaction, tries = client.metadata_store.transaction, []

    def lose(times: int) -> None:
        def lose_or_do(changes: Sequence[StoreChange]) -> None:
            tries.append(changes)
            if len(tries) <= times:
                raise MetadataUnavailableError("zk://", "connection lost")
            transaction(changes)

        tries.clear()
        monkeypatch.setattr(client.metadata_store, "transaction", lose_or_do)

    lose(MAX_CREATE_TRIES - 1)
    with client.create_ledger() as writer:
        assert writer.append(b"x") == 0
    lose(MAX_CREATE_TRIES)
    with pytest.raises(MetadataUnavailableError):
        client.create_ledger()
    assert len(tries) == MAX_CREATE_TRIES


def test_a_reader_that_stops_early_leaves_nothing_behind(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        writer.append_batch([b"x" * 100_000] * 200)
    reader = client.open_ledger(writer.ledger_id)
    for _ in range(20):
        batches = reader.read(0, 199)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert len(payloads(reader)) == 200


def test_an_impossible_range_is_refused(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        writer.append(b"x")
    reader = client.open_ledger(writer.ledger_id)
    for first, last in ((-1, 0), (1, 0)):
        with pytest.raises(ConfigError, match="range of entries"):
            list(reader.read(first, last))


def test_a_null_payload_and_an_empty_batch_are_refused(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        with pytest.raises(ConfigError, match="1 nulls"):
            writer.append_batch(pa.array([b"x", None], pa.binary()))
        with pytest.raises(ConfigError, match="at least one"):
            writer.append_batch([])


def test_an_unreachable_metadata_store_is_said_within_the_connect_timeout() -> None:
    started = time.monotonic()
    with pytest.raises(MetadataUnavailableError, match=r"zk://127\.0\.0\.1:1/ledgers"):
        BookKeeper("zk://127.0.0.1:1/ledgers", ClientConfig(connect_timeout_s=1.0))
    assert time.monotonic() - started < 20


def test_a_root_that_is_no_cluster_is_refused_with_the_way_out(metadata_uri: str) -> None:
    with pytest.raises(ConfigError, match="bk-spark cluster init"):
        BookKeeper(metadata_uri)


def test_a_batch_size_above_what_a_message_can_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match="add_batch_bytes"):
        ClientConfig(add_batch_bytes=MAX_ENTRY_BYTES, add_window_bytes=4 * MAX_ENTRY_BYTES)


@pytest.mark.parametrize("payload", ["text", None, 3])
def test_a_payload_that_is_not_bytes_is_refused_by_name(client: BookKeeper, payload: object) -> None:
    with client.create_ledger() as writer:
        with pytest.raises(ConfigError, match="it must be bytes"):
            writer.append(payload)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="it must be bytes"):
            writer.append_batch([b"x", payload])  # type: ignore[list-item]


@pytest.mark.parametrize("payloads", ["abc", b"abc", None, pa.array([1]), pa.array(["a"])])
def test_payloads_that_are_no_sequence_of_bytes_are_refused(client: BookKeeper, payloads: object) -> None:
    with client.create_ledger() as writer, pytest.raises(ConfigError, match="payloads"):
        writer.append_batch(payloads)  # type: ignore[arg-type]


@pytest.mark.parametrize("ledger_id", [None, "1", 1.5, True])
def test_a_ledger_id_that_is_no_number_is_refused(client: BookKeeper, ledger_id: object) -> None:
    with pytest.raises(ConfigError, match="a ledger id"):
        client.open_ledger(ledger_id)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a ledger id"):
        client.delete_ledger(ledger_id)  # type: ignore[arg-type]


def test_arguments_of_a_wrong_type_are_refused_by_name(client: BookKeeper) -> None:
    with pytest.raises(ConfigError, match="ensembleSize"):
        client.create_ledger("3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="password"):
        client.create_ledger(password="text")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the metadata URI"):
        BookKeeper(None)  # type: ignore[arg-type]


def test_a_ledger_of_a_log_is_not_deleted_without_force(client: BookKeeper) -> None:
    """The log could not be read any more."""
    with client.create_ledger() as writer:
        writer.append(b"x")
    client.open_log("keeps-its-ledgers", create=True).append_ledgers([writer.ledger_id])
    with pytest.raises(ConfigError, match="belongs to the log"):
        client.delete_ledger(writer.ledger_id)
    client.delete_ledger(writer.ledger_id, force=True)
