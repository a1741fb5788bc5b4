"""Ledgers taken from their writers, over real bookies: fencing, the end that is found, and who finds it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger import recovery_on_open
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import DigestType
from bk_spark.errors import (
    BookieUnavailableError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    UnauthorizedAccessError,
)
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerState
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, bookies_of, payloads, refused, suspended

HASTY = dataclasses.replace(BRISK, recovery_timeout_s=1.0)
"""A client whose recoveries are known to fail."""


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    """The one that reads and recovers."""
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def owner(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    """Another one, whose writers are to be displaced."""
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.mark.parametrize(("e", "w", "a"), [(3, 3, 2), (3, 2, 2), (4, 3, 2), (1, 1, 1)])
@pytest.mark.parametrize("digest_type", DigestType)
def test_a_ledger_whose_writer_vanished_ends_after_its_last_confirmed_entry(
    client: BookKeeper, owner: BookKeeper, e: int, w: int, a: int, digest_type: DigestType
) -> None:
    writer = owner.create_ledger(e, w, a, digest_type, password=b"secret", custom_metadata={"owner": b"me"})
    expected = [b"x" * i for i in range(50)]
    writer.append_batch(expected[:30])
    for payload in expected[30:]:
        writer.append(payload)
    reader = client.open_ledger(writer.ledger_id, b"secret")
    assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 49, sum(map(len, expected)))
    assert payloads(reader) == expected
    assert reader.metadata.custom("owner") == b"me"
    assert client.ledger_metadata(writer.ledger_id) == reader.metadata


def test_a_ledger_without_entries_is_recovered_as_empty(client: BookKeeper, owner: BookKeeper) -> None:
    writer = owner.create_ledger()
    reader = client.open_ledger(writer.ledger_id)
    assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, -1, 0)
    assert refused(writer)


def test_a_writer_at_work_is_fenced_and_no_confirmed_entry_is_lost(client: BookKeeper, owner: BookKeeper) -> None:
    """Ref: situation 24."""
    writer = owner.create_ledger()
    confirmed: list[int] = []
    started, ended = threading.Event(), Future[BaseException]()

    def write() -> None:
        try:
            while True:
                confirmed.append(writer.append(b"%d" % len(confirmed)))
                if len(confirmed) == 20:
                    started.set()
        except (LedgerFencedError, LedgerClosedError) as fenced:
            ended.set_result(fenced)

    thread = threading.Thread(target=write)
    thread.start()
    started.wait(DEADLINE_S)
    reader = client.open_ledger(writer.ledger_id)
    ended.result(DEADLINE_S)
    thread.join()
    assert reader.last_add_confirmed >= confirmed[-1]
    assert payloads(reader) == [b"%d" % i for i in range(reader.last_add_confirmed + 1)]


def test_a_block_that_ends_as_fenced_raises_that_and_not_what_close_makes_of_it(
    client: BookKeeper, owner: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = owner.create_ledger()
    writer.append(b"one")

    def closed_elsewhere() -> None:
        raise MetadataConflictError("the metadata of a ledger", "it was closed at another end")

    monkeypatch.setattr(writer, "close", closed_elsewhere)

    def write_on() -> None:
        with writer:
            client.open_ledger(writer.ledger_id)
            writer.append(b"two")

    with pytest.raises(LedgerFencedError) as raised:
        write_on()
    assert "closed at another end" in raised.value.__notes__[0]
    with pytest.raises(MetadataConflictError), writer:
        pass


def test_many_who_open_at_once_see_the_same_last_entry(client: BookKeeper, owner: BookKeeper) -> None:
    """Also while the writer goes on adding. Ref: situation 25."""
    writer = owner.create_ledger()
    futures = [writer.append_async(b"%d" % i) for i in range(300)]
    futures[100].result(DEADLINE_S)
    readers: list[ReadHandle] = []
    openers = [client, owner] * 4
    threads = [threading.Thread(target=lambda one=one: readers.append(one.open_ledger(writer.ledger_id))) for one in openers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(readers) == len(openers)
    [(last, length)] = {(reader.last_add_confirmed, reader.length) for reader in readers}
    acked = [future.result() for future in futures if future.exception(DEADLINE_S) is None]
    assert last >= acked[-1]
    assert length == sum(len(b"%d" % i) for i in range(last + 1))


def test_who_opens_without_recovery_leaves_the_writer_alone(client: BookKeeper, owner: BookKeeper) -> None:
    """Ref: situation 26."""
    with owner.create_ledger() as writer:
        writer.append_batch([b"a", b"b"])
        for _ in range(3):
            reader = client.open_ledger(writer.ledger_id, recover=False)
            reader.read_last_add_confirmed()
            reader.try_read_last_add_confirmed()
            list(reader.read_unconfirmed(0, 1))
        assert writer.append(b"c") == 2
        assert client.ledger_metadata(writer.ledger_id).state is LedgerState.OPEN


def test_a_writer_confirms_nothing_after_another_one_closed_the_ledger_though_one_bookie_was_not_fenced(
    client: BookKeeper, owner: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """The bookie that stood still takes the late add, and the two others refuse it. Ref: situation 28."""
    writer = owner.create_ledger()
    writer.append(b"x")
    with suspended(bookies_of(wide_cluster, writer.metadata)[0]):
        assert client.open_ledger(writer.ledger_id).last_add_confirmed == 0
    assert refused(writer)
    assert writer.last_add_confirmed == 0
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"x"]


def test_a_wrong_password_fences_nothing(client: BookKeeper, owner: BookKeeper) -> None:
    """Ref: situation 41."""
    with owner.create_ledger(password=b"right") as writer:
        writer.append(b"x")
        with pytest.raises(UnauthorizedAccessError, match=f"ledger {writer.ledger_id}"):
            client.open_ledger(writer.ledger_id, b"wrong")
        assert client.ledger_metadata(writer.ledger_id).state is LedgerState.OPEN
        assert writer.append(b"y") == 1


def test_bookies_do_not_fence_for_whoever_has_changed_the_password_in_the_metadata(
    wide_cluster: LocalCluster, owner: BookKeeper
) -> None:
    """Ref: situation 41."""
    writer = owner.create_ledger(password=b"right")
    writer.append(b"x")
    with BookKeeper(wide_cluster.metadata_uri, HASTY) as client:
        metadata, version = client._ledgers.versioned(writer.ledger_id)
        forged = dataclasses.replace(metadata, password=b"wrong")
        with pytest.raises(BookieUnavailableError, match="UNAUTHORIZED"):
            recovery_on_open.recovered(client.context, client._ledgers, forged, version)
    assert writer.append(b"y") == 1


def test_while_too_few_bookies_answer_an_open_fails_and_the_next_one_finds_the_end(
    owner: BookKeeper, wide_cluster: LocalCluster
) -> None:
    """Nothing is cut off meanwhile. Ref: situation 35."""
    writer = owner.create_ledger()
    writer.append_batch([b"a", b"b", b"c"])
    with BookKeeper(wide_cluster.metadata_uri, HASTY) as client:
        with suspended(*bookies_of(wide_cluster, writer.metadata)[:2]):
            with pytest.raises(BookieUnavailableError) as unavailable:
                client.open_ledger(writer.ledger_id)
            assert unavailable.value.retryable
            assert client.ledger_metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY
        assert payloads(client.open_ledger(writer.ledger_id)) == [b"a", b"b", b"c"]


def test_a_recovery_that_another_one_got_ahead_of_is_begun_anew_a_bounded_number_of_times(
    client: BookKeeper, owner: BookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ref: protocol rule 13."""
    writer = owner.create_ledger()
    writer.append(b"x")
    run, tries = recovery_on_open.run_writing, []
    lost = MetadataConflictError("the metadata", "another recovery's ensemble")

    def lose(times: int) -> None:
        async def run_or_lose(*arguments: object) -> object:
            tries.append(arguments)
            if len(tries) <= times:
                raise lost
            return await run(*arguments)  # type: ignore[arg-type]

        tries.clear()
        monkeypatch.setattr(recovery_on_open, "run_writing", run_or_lose)

    lose(recovery_on_open.MAX_RECOVERIES)
    with pytest.raises(MetadataConflictError):
        client.open_ledger(writer.ledger_id)
    assert len(tries) == recovery_on_open.MAX_RECOVERIES
    lose(recovery_on_open.MAX_RECOVERIES - 1)
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"x"]
