"""What one client writes the other reads, on Apache's bookies and on ours: every digest, with and without password, striped
and not."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import APACHE_FRAME_BYTES, ClientConfig
from bk_spark.errors import LedgerFencedError
from bk_spark.wire.apache.frame_limits import most_payload_bytes
from tests.interop.apache import IS_ALL, ON_BOTH, ApacheError, JavaClient, payload, read_all, summary

DIGESTS = ["CRC32C", "CRC32", "HMAC", "DUMMY"]
SHAPES = [(3, 3, 2), (3, 2, 2)]
SIZES = [0, 100, -1] if IS_ALL else [-1]
PASSWORDS = ["", "secret"] if IS_ALL else ["secret"]
COUNT = 700
"""More than one batch of ours, and more than the single reads that are under way at a time."""

LEDGER_FENCED = -101

pytestmark = [pytest.mark.timeout(1200), ON_BOTH]
"""The first test fetches a hundred megabytes where that was not done yet."""


def awaited(look: Callable[[], int], wanted: int) -> bool:
    """Look until ``wanted`` is seen, for half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if look() == wanted:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_java_wrote_we_read(java: JavaClient, client: BookKeeper, shape, digest: str, password: str) -> None:
    for size in SIZES:
        ledger_id = java.create(*shape, digest, password)
        java.add(ledger_id, COUNT, size)
        java.close_ledger(ledger_id)
        with client.open_ledger(ledger_id, password.encode(), recover=False) as reader:
            assert read_all(reader) == [payload(ledger_id, one, size) for one in range(COUNT)]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_we_write_java_reads(
    java: JavaClient, java_3: JavaClient, client: BookKeeper, shape, digest: str, password: str
) -> None:
    e, w, a = shape
    for size in SIZES:
        with client.create_ledger(e, w, a, digest, password.encode()) as writer:
            payloads = [payload(writer.ledger_id, one, size) for one in range(COUNT)]
            writer.append_batch(payloads[: COUNT // 2])
            for added in [writer.append_async(one) for one in payloads[COUNT // 2 :]]:
                added.result()
        for reader in (java, java_3):
            reader.open(writer.ledger_id, digest, password, recover=False)
            assert reader.read(writer.ledger_id, 0, COUNT - 1) == summary(payloads)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_open_ledger_of_java_that_we_recover_is_closed_with_all_that_java_confirmed(
    java: JavaClient, client: BookKeeper, shape
) -> None:
    ledger_id = java.create(*shape)
    java.add(ledger_id, COUNT, 50)
    with client.open_ledger(ledger_id) as reader:
        assert read_all(reader) == [payload(ledger_id, one, 50) for one in range(COUNT)]
    with pytest.raises(ApacheError) as fenced:
        java.add(ledger_id, 1, 50)
    assert fenced.value.code == LEDGER_FENCED
    java.open(ledger_id, recover=False)
    assert java.read(ledger_id, 0, COUNT - 1)["count"] == COUNT


@pytest.mark.parametrize("shape", SHAPES)
def test_an_open_ledger_of_ours_that_java_recovers_is_closed_with_all_that_we_confirmed(
    java: JavaClient, client: BookKeeper, shape
) -> None:
    e, w, a = shape
    writer = client.create_ledger(e, w, a)
    payloads = [payload(writer.ledger_id, one, 50) for one in range(COUNT)]
    writer.append_batch(payloads)
    opened = java.open(writer.ledger_id, recover=True)
    assert (opened["closed"], opened["last"]) == (True, COUNT - 1)
    assert java.read(writer.ledger_id, 0, COUNT - 1) == summary(payloads)
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_entries_are_written_and_read_and_recovered_by_both(
    java: JavaClient, java_3: JavaClient, client: BookKeeper, shape
) -> None:
    sizes = [0, 1, 1 << 20, most_payload_bytes(APACHE_FRAME_BYTES)] if IS_ALL else [most_payload_bytes(APACHE_FRAME_BYTES)]
    for size in sizes:
        theirs = java.create(*shape)
        java.add(theirs, 3, size)
        with client.open_ledger(theirs) as reader:
            assert read_all(reader) == [payload(theirs, one, size) for one in range(3)]
        with client.create_ledger(*shape) as writer:
            payloads = [payload(writer.ledger_id, one, size) for one in range(3)]
            writer.append_batch(payloads)
            for reader in (java, java_3):
                reader.open(writer.ledger_id, recover=reader is java)
                assert reader.read(writer.ledger_id, 0, 2) == summary(payloads)


@pytest.mark.parametrize("version", [2, 3])
def test_a_java_client_gets_no_entry_confirmed_that_it_could_not_read_or_recover(
    request: pytest.FixtureRequest, java: JavaClient, version: int
) -> None:
    """The writer fails at once, and another client recovers the ledger with what was confirmed before."""
    writer = java if version == 2 else request.getfixturevalue("java_3")
    for size in (APACHE_FRAME_BYTES + 4096, APACHE_FRAME_BYTES - 1):
        ledger_id = writer.create(3, 3, 2)
        writer.add(ledger_id, 2, 100)
        began = time.monotonic()
        with pytest.raises(ApacheError):
            writer.add(ledger_id, 1, size)
        assert time.monotonic() - began < 10
        reader = java if version == 3 else request.getfixturevalue("java_3")
        assert reader.open(ledger_id)["last"] == 1
        assert reader.read(ledger_id, 0, 1) == summary([payload(ledger_id, one, 100) for one in range(2)])


def test_an_entry_just_below_the_limit_is_recovered_by_another_java_client(java: JavaClient, java_3: JavaClient) -> None:
    size = most_payload_bytes(APACHE_FRAME_BYTES)
    for writer, reader in ((java, java_3), (java_3, java)):
        ledger_id = writer.create(3, 3, 2)
        writer.add(ledger_id, 2, size)
        assert reader.open(ledger_id)["last"] == 1
        assert reader.read(ledger_id, 0, 1) == summary([payload(ledger_id, one, size) for one in range(2)])


def test_an_explicit_last_add_confirmed_of_either_writer_is_seen_by_readers_of_the_other(
    java: JavaClient, java_explicit: JavaClient, client: BookKeeper
) -> None:
    with client.create_ledger(3, 3, 2) as writer:
        writer.append(b"only")
        java.open(writer.ledger_id, recover=False)
        assert awaited(lambda: java.explicit_last_add_confirmed(writer.ledger_id), 0)
    theirs = java_explicit.create(3, 3, 2)
    java_explicit.add(theirs, 1, 20)
    with client.open_ledger(theirs, recover=False) as reader:
        assert reader.wait_for_last_add_confirmed(-1, timeout_s=30) == 0


def test_many_small_entries_at_once_do_not_overrun_bookies_at_their_defaults(metadata_uri: str) -> None:
    """No add is refused, which would begin another fragment; a slow bookie has its time."""
    patient = ClientConfig(add_timeout_s=60.0, add_quorum_timeout_s=120.0)
    with BookKeeper(metadata_uri, patient) as client, client.create_ledger(3, 3, 2) as writer:
        for added in [writer.append_batch_async([b"x"] * 5000) for _ in range(40)]:
            added.result()
        assert writer.last_add_confirmed == 40 * 5000 - 1
        assert len(client.ledger_metadata(writer.ledger_id).fragments) == 1


def test_a_tailing_reader_sees_what_java_confirms(java: JavaClient, client: BookKeeper) -> None:
    """A writer's last entry is seen with the next one: Apache's tells no explicit LAC by default."""
    ledger_id = java.create(3, 3, 2)
    java.add(ledger_id, 1, 20)
    with client.open_ledger(ledger_id, recover=False) as reader, ThreadPoolExecutor(1) as waiting:
        for confirmed in range(5):
            found = waiting.submit(reader.wait_for_last_add_confirmed, confirmed - 1, 30)
            java.add(ledger_id, 1, 20)
            assert found.result() == confirmed


def test_an_idle_writer_of_ours_tells_its_readers_how_far_it_is_confirmed(client: BookKeeper) -> None:
    with client.create_ledger(3, 3, 2) as writer:
        writer.append(b"only")
        with client.open_ledger(writer.ledger_id, recover=False) as reader:
            assert reader.wait_for_last_add_confirmed(-1, timeout_s=30) == 0
