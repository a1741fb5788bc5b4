"""The queue before a writer: batching, the window, and what happens to those who wait when something breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger import write_queue
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.ledger.write_queue import SMALL_BYTES
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.state_machine import Append, Event
from bk_spark.config import MAX_BATCH_ENTRIES, ClientConfig
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import AddQuorumTimeoutError, BookKeeperError, ConfigError, InternalError
from bk_spark.local.cluster import LocalCluster

DEADLINE_S = 60.0
QUICK = ClientConfig(add_timeout_s=2.0, add_batch_bytes=10_000, add_window_bytes=20_000)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, QUICK) as client:
        yield client


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of entries of each batch that was handed to a state machine."""
    sizes: list[int] = []
    handle = AddEntries.handle

    def record(self: AddEntries, event: Event, now_ms: int) -> None:
        if isinstance(event, Append):
            sizes.append(len(event.payloads))
        handle(self, event, now_ms)

    monkeypatch.setattr(AddEntries, "handle", record)
    return sizes


@contextmanager
def standing_still(cluster: LocalCluster) -> Iterator[None]:
    """All bookies, for shorter than it takes until their sessions or connections end."""
    for bookie in cluster.bookies:
        bookie.suspend()
    try:
        yield
    finally:
        for bookie in cluster.bookies:
            bookie.resume()


def _until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_single_appends_travel_together_when_they_come_faster_than_they_are_confirmed(
    client: BookKeeper, appended: list[int]
) -> None:
    with client.create_ledger() as writer:
        futures = [writer.append_async(b"x") for _ in range(2000)]
        assert [future.result(DEADLINE_S) for future in futures] == list(range(2000))
    assert sum(appended) == 2000
    assert len(appended) < 1000


@pytest.mark.parametrize(("most_entries", "largest"), [(MAX_BATCH_ENTRIES, 100), (60, 60)])
def test_single_appends_that_wait_are_cut_into_batches_that_bookies_take(
    client: BookKeeper,
    cluster: LocalCluster,
    appended: list[int],
    monkeypatch: pytest.MonkeyPatch,
    most_entries: int,
    largest: int,
) -> None:
    monkeypatch.setattr(write_queue, "MAX_BATCH_ENTRIES", most_entries)
    payload = bytes(QUICK.add_batch_bytes // 100 - ENTRY_OVERHEAD_BYTES)
    with client.create_ledger() as writer:
        with standing_still(cluster):
            futures = [writer.append_async(payload) for _ in range(190)]
        assert [future.result(DEADLINE_S) for future in futures] == list(range(190))
    assert max(appended) == largest
    assert sum(appended) == 190


def test_small_appends_wait_for_what_is_on_its_way_and_then_travel_together(
    client: BookKeeper, cluster: LocalCluster, appended: list[int]
) -> None:
    with client.create_ledger() as writer, standing_still(cluster):
        futures = [writer.append_async(b"first")]
        _until(lambda: appended == [1])
        futures += [writer.append_async(b"x") for _ in range(5)]
        time.sleep(0.2)
        assert appended == [1]
        for bookie in cluster.bookies:
            bookie.resume()
        assert [future.result(DEADLINE_S) for future in futures] == list(range(6))
    assert appended == [1, 5]


def test_large_batches_do_not_wait_for_each_other(cluster: LocalCluster, appended: list[int]) -> None:
    with BookKeeper(cluster.metadata_uri) as client, client.create_ledger() as writer, standing_still(cluster):
        for _ in range(3):
            writer.append_batch_async([b"x" * SMALL_BYTES])
        _until(lambda: sum(appended) == 3)


def test_appends_do_not_wait_for_a_force(client: BookKeeper, cluster: LocalCluster, appended: list[int]) -> None:
    with client.create_ledger(deferred_sync=True) as writer:
        writer.append(b"before")
        with standing_still(cluster):
            forcing = threading.Thread(target=writer.force, daemon=True)
            forcing.start()
            _until(lambda: writer._queue._forcing == 1)
            after = writer.append_async(b"after")
            _until(lambda: appended == [1, 1])
        forcing.join(DEADLINE_S)
        assert after.result(DEADLINE_S) == 1


def test_a_large_batch_is_cut_by_bytes_and_by_entries(client: BookKeeper, appended: list[int]) -> None:
    with client.create_ledger() as writer:
        writer.append_batch([b"x" * 968] * 25)
    assert appended == [10, 10, 5]
    appended.clear()
    with BookKeeper(client.metadata_store.uri) as wide, wide.create_ledger() as writer:
        writer.append_batch(pa.array([b""] * (MAX_BATCH_ENTRIES + 5), pa.binary()))
    assert max(appended) <= MAX_BATCH_ENTRIES
    assert sum(appended) == MAX_BATCH_ENTRIES + 5


def test_an_append_above_the_whole_window_goes_alone(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        assert writer.append(b"x" * 50_000) == 0
        assert writer.append_batch([b"y" * 50_000] * 3) == (1, 3)


def test_appends_wait_while_the_window_is_full_and_fail_when_the_writer_does(cluster: LocalCluster) -> None:
    """All bookies stand still: what waits for room must not wait for ever."""
    with BookKeeper(cluster.metadata_uri, replace(QUICK, add_timeout_s=0.5, add_quorum_timeout_s=1.5)) as client:
        _wait_and_fail(client.create_ledger(), cluster)


def _wait_and_fail(writer: WriteHandle, cluster: LocalCluster) -> None:
    with standing_still(cluster):
        failed: list[BaseException | None] = []
        thread = threading.Thread(target=lambda: failed.append(writer.append_async(b"x" * 9_000).exception(DEADLINE_S)))
        futures = [writer.append_async(b"x" * 9_000) for _ in range(2)]
        thread.start()
        assert all(isinstance(future.exception(DEADLINE_S), AddQuorumTimeoutError) for future in futures)
        thread.join(DEADLINE_S)
        assert [type(error) for error in failed] == [AddQuorumTimeoutError]


def test_a_client_that_is_closed_answers_everybody_who_waits(cluster: LocalCluster) -> None:
    client = BookKeeper(cluster.metadata_uri)
    writer = client.create_ledger()
    for bookie in cluster.bookies:
        bookie.suspend()
    try:
        future = writer.append_async(b"x")
        client.close()
        assert isinstance(future.exception(DEADLINE_S), BookKeeperError)
    finally:
        for bookie in cluster.bookies:
            bookie.resume()


def test_a_bug_in_the_state_machine_reaches_everybody_who_waits(client: BookKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = client.create_ledger()
    writer.append(b"before")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(AddEntries, "_append", fail)
    for _ in range(2):
        error = writer.append_async(b"x").exception(DEADLINE_S)
        assert isinstance(error, InternalError)
        assert "ZeroDivisionError" in str(error)
    with pytest.raises(InternalError):
        writer.close()


def test_what_waits_for_room_is_freed_by_a_bug_in_the_state_machine(
    client: BookKeeper, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confirmed entries that a silent bookie still owes an answer for fill the window when the writer breaks."""
    writer = client.create_ledger()
    cluster.bookies[0].suspend()
    try:
        writer.append_batch([b"x" * 9_000] * 2)

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(AddEntries, "_answered", fail)
        errors: list[BaseException | None] = []
        thread = threading.Thread(target=lambda: errors.append(writer.append_async(b"y" * 9_000).exception(DEADLINE_S)))
        thread.start()
        thread.join(DEADLINE_S)
        assert [type(error) for error in errors] == [InternalError]
    finally:
        cluster.bookies[0].resume()


def test_the_entries_of_one_call_have_consecutive_ids_though_other_threads_append(client: BookKeeper) -> None:
    """A call above the batch size is cut into pieces; nothing of another thread may come between them."""
    with client.create_ledger() as writer:
        ranges: list[tuple[int, int]] = []
        threads = [
            threading.Thread(target=lambda: ranges.extend(writer.append_batch([b"x" * 968] * 40) for _ in range(5)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ranges) == [(first, first + 39) for first in range(0, 800, 40)]


def test_a_callback_that_would_have_to_wait_is_told_so_and_stops_nobody(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        raised: list[BaseException] = []
        done = threading.Event()

        def callback(_: object) -> None:
            waiting = (writer.close, lambda: writer.append(b"z"), lambda: writer.append_batch([b"z"]))
            for call in (lambda: [writer.append_async(b"y" * 9_000) for _ in range(5)], *waiting):
                try:
                    call()
                except ConfigError as error:
                    raised.append(error)
            done.set()

        writer.append_async(b"x").add_done_callback(callback)
        assert done.wait(DEADLINE_S)
        assert len(raised) == 4
        assert "hand the call to a thread of yours" in str(raised[0])
        assert writer.append(b"after") > 0


def test_an_append_cannot_be_cancelled(client: BookKeeper) -> None:
    with client.create_ledger() as writer:
        futures = [writer.append_async(b"x") for _ in range(100)]
        assert not any(future.cancel() for future in futures)
        assert [future.result(DEADLINE_S) for future in futures] == list(range(100))


def test_closing_a_writer_after_its_client_fails_at_once(cluster: LocalCluster) -> None:
    client = BookKeeper(cluster.metadata_uri)
    writer = client.create_ledger()
    reader = client.open_ledger(writer.ledger_id, recover=False)
    client.close()
    with pytest.raises(ConfigError, match="this client is closed"):
        writer.append(b"x")
    with pytest.raises(ConfigError, match="this client is closed"):
        writer.close()
    with pytest.raises(ConfigError, match="this client is closed"):
        reader.read_last_add_confirmed()


def test_a_silent_bookies_queue_soon_holds_nothing_of_writers_that_are_done(client: BookKeeper, cluster: LocalCluster) -> None:
    """Otherwise a client that makes one ledger after the other grows without a bound."""
    victim = cluster.bookies[2]
    victim.suspend()
    try:
        for _ in range(5):
            with client.create_ledger() as writer:
                writer.append_batch([b"x" * 9_000] * 2)
        queue = client.context.bookies.bookie(victim.bookie_id)._known._outgoing._queue  # type: ignore[attr-defined]
        deadline = time.monotonic() + 30
        while any(queued.request is not None for queued in queue):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        victim.resume()
