"""Ledgers whose entry ids the application chooses, over real bookies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.state_machine import Append, Event
from bk_spark.config import ClientConfig, DigestType
from bk_spark.errors import (
    AddQuorumTimeoutError,
    AppendWindowFullError,
    ConfigError,
    DuplicateEntryError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
)
from bk_spark.local.cluster import LocalCluster
from tests.cluster.live_ledgers import DEADLINE_S, payloads

NARROW = ClientConfig(add_timeout_s=2.0, add_batch_bytes=10_000, add_window_bytes=20_000)
SIZE = 4_000
"""Five of these fill the window."""


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, NARROW) as client:
        yield client


def _results(futures: list[Future[int]]) -> list[int]:
    return [future.result(DEADLINE_S) for future in futures]


@pytest.mark.parametrize(("e", "w", "a"), [(3, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("digest_type", DigestType)
def test_entries_appended_in_any_order_are_confirmed_in_the_order_of_their_ids(
    client: BookKeeper, e: int, w: int, a: int, digest_type: DigestType
) -> None:
    """Ref: protocol rule 29."""
    with client.create_ledger_adv(e, w, a, digest_type, b"secret", {"owner": b"me"}) as writer:
        confirmed: list[int] = []
        ids = [3, 1, 4, 2, 0, 7, 6, 5]
        futures = {entry_id: writer.append_async(entry_id, b"%d" % entry_id) for entry_id in ids}
        for future in futures.values():
            future.add_done_callback(lambda done: confirmed.append(done.result()))
        assert [futures[entry_id].result(DEADLINE_S) for entry_id in ids] == ids
        assert writer.append(8, b"8") == 8
        assert confirmed == sorted(ids)  # a callback may come just after the result, and comes before the next confirmation
        assert writer.last_add_confirmed == 8
    reader = client.open_ledger(writer.ledger_id, b"secret")
    assert payloads(reader) == [b"%d" % i for i in range(9)]
    assert reader.metadata.custom("owner") == b"me"


def test_an_id_that_was_appended_is_refused_confirmed_or_waiting_and_the_writer_goes_on(client: BookKeeper) -> None:
    """Ref: protocol rule 29."""
    with client.create_ledger_adv() as writer:
        writer.append(0, b"0")
        waiting = writer.append_async(2, b"2")
        for entry_id in (0, 2):
            with pytest.raises(DuplicateEntryError, match=f"entry {entry_id} of ledger {writer.ledger_id}"):
                writer.append(entry_id, b"again")
        assert writer.append(1, b"1") == 1
        assert waiting.result(DEADLINE_S) == 2
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"0", b"1", b"2"]


def test_a_duplicate_takes_no_neighbour_with_it(client: BookKeeper) -> None:
    """Appends that gather travel together; one that is refused must not drag along those beside it."""
    with client.create_ledger_adv() as writer:
        writer.append(0, b"0")
        waiting = writer.append_async(5, b"5")
        gathered = threading.Event()
        client.context.loop.call_soon_threadsafe(gathered.wait, DEADLINE_S)
        futures = {entry_id: writer.append_async(entry_id, b"%d" % entry_id) for entry_id in range(1, 10)}
        gathered.set()
        assert isinstance(futures.pop(5).exception(DEADLINE_S), DuplicateEntryError)
        assert _results([*futures.values(), waiting]) == [1, 2, 3, 4, 6, 7, 8, 9, 5]
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"%d" % i for i in range(10)]


def test_entries_in_order_that_gather_travel_together(client: BookKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append = AddEntries.handle

    def record(self: AddEntries, event: Event, now_ms: int) -> None:
        sizes.extend([len(event.payloads)] if isinstance(event, Append) else [])
        append(self, event, now_ms)

    monkeypatch.setattr(AddEntries, "handle", record)
    with client.create_ledger_adv() as writer:
        gathered = threading.Event()
        client.context.loop.call_soon_threadsafe(gathered.wait, DEADLINE_S)
        futures = [writer.append_async(entry_id, b"x") for entry_id in range(100)]
        gathered.set()
        assert _results(futures) == list(range(100))
    assert sizes == [100]


def test_batches_take_consecutive_ids_and_are_cut_where_they_are_large(client: BookKeeper) -> None:
    with client.create_ledger_adv() as writer:
        later = writer.append_batch_async(10, [b"b"] * 5)
        large = [b"a" * SIZE] * 10
        assert writer.append_batch(0, large) == (0, 9)
        assert later.result(DEADLINE_S) == (10, 14)
    assert payloads(client.open_ledger(writer.ledger_id)) == large + [b"b"] * 5


def test_what_waits_beyond_a_gap_never_keeps_out_the_entry_that_fills_it(client: BookKeeper) -> None:
    """The window is full of waiting entries: one more is refused and says which one is missing, that one is let in."""
    with client.create_ledger_adv() as writer:
        waiting = [writer.append_async(entry_id, b"x" * (SIZE - 100)) for entry_id in range(1, 6)]
        for call in (lambda: writer.append_async(6, b"x" * SIZE), lambda: writer.append_batch_async(6, [b"x" * 1000] * 9)):
            with pytest.raises(AppendWindowFullError, match=r"entry 6 of .* wait for entry 0.*append the missing one") as full:
                call()
            assert full.value.retryable
        assert writer.append(0, b"x" * 50_000) == 0
        assert _results(waiting) == [1, 2, 3, 4, 5]
        assert writer.append(6, b"y") == 6
    assert len(payloads(client.open_ledger(writer.ledger_id))) == 7


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_what_fills_the_gap_is_let_in_also_when_it_came_behind_a_force(client: BookKeeper) -> None:
    """It stands behind the queue first; a force makes no room, but it leaves the queue."""
    with client.create_ledger_adv() as writer:
        waiting = [writer.append_async(entry_id, b"x" * (SIZE - 100)) for entry_id in range(1, 6)]
        with pytest.raises(AppendWindowFullError):
            writer.append_async(6, b"x" * SIZE)
        gathered, arrived = threading.Event(), writer._queue._arrivals._arrived
        client.context.loop.call_soon_threadsafe(gathered.wait, DEADLINE_S)
        forcing = threading.Thread(target=writer.force, daemon=True)
        filling = threading.Thread(target=lambda: waiting.append(writer.append_async(0, b"x" * SIZE)), daemon=True)
        for thread, count in ((forcing, 1), (filling, 2)):
            thread.start()
            until(partial(lambda count: len(arrived) == count, count))
        gathered.set()
        filling.join(DEADLINE_S)
        assert _results(waiting) == [1, 2, 3, 4, 5, 0]


def test_more_small_entries_than_may_be_on_their_way_can_wait_beyond_a_gap(client: BookKeeper) -> None:
    with client.create_ledger_adv() as writer:
        futures = [writer.append_async(entry_id, b"%d" % entry_id) for entry_id in range(200, 0, -1)]
        assert writer.append(0, b"0") == 0
        assert _results(futures) == list(range(200, 0, -1))
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"%d" % i for i in range(201)]


def test_an_append_in_order_waits_for_room_that_entries_on_their_way_will_make(
    cluster: LocalCluster,
) -> None:
    """All bookies stand still: nothing is refused, and when the writer fails so does everything that waits."""
    client = BookKeeper(cluster.metadata_uri, replace(NARROW, add_timeout_s=0.5, add_quorum_timeout_s=1.5))
    writer = client.create_ledger_adv()
    for bookie in cluster.bookies:
        bookie.suspend()
    try:
        futures = [writer.append_async(entry_id, b"x" * SIZE) for entry_id in (0, 1, 2, 3, 9)]
        errors: list[BaseException | None] = []
        threads = [
            threading.Thread(target=lambda i=i: errors.append(writer.append_async(i, b"x" * SIZE).exception(DEADLINE_S)))
            for i in (4, 20)
        ]
        for thread in threads:
            thread.start()
        assert all(isinstance(future.exception(DEADLINE_S), AddQuorumTimeoutError) for future in futures)
        for thread in threads:
            thread.join(DEADLINE_S)
        assert [type(error) for error in errors] == [AddQuorumTimeoutError] * 2
    finally:
        for bookie in cluster.bookies:
            bookie.resume()
        client.close()


def test_many_threads_may_bring_the_entries(client: BookKeeper) -> None:
    """Each refused append is made again: the gap is filled by another thread."""
    with client.create_ledger_adv() as writer:
        futures: list[Future[int]] = []

        def bring(ids: range) -> None:
            for entry_id in ids:
                while True:
                    try:
                        futures.append(writer.append_async(entry_id, b"x" * 500))
                        break
                    except AppendWindowFullError:
                        pass

        threads = [threading.Thread(target=bring, args=(range(start, 200, 4),)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(_results(futures)) == list(range(200))


def test_close_ends_the_ledger_before_the_first_gap_and_fails_what_waits(client: BookKeeper) -> None:
    writer = client.create_ledger_adv()
    writer.append(0, b"0")
    waiting = writer.append_async(2, b"2")
    writer.close()
    assert isinstance(waiting.exception(DEADLINE_S), LedgerClosedError)
    with pytest.raises(LedgerClosedError):
        writer.append(1, b"1")
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"0"]


def test_a_recovery_ends_the_ledger_before_the_first_gap_and_fails_what_waits(client: BookKeeper) -> None:
    writer = client.create_ledger_adv()
    writer.append(0, b"0")
    waiting = writer.append_async(2, b"2")
    assert payloads(client.open_ledger(writer.ledger_id)) == [b"0"]
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        writer.append(1, b"1")
    assert isinstance(waiting.exception(DEADLINE_S), (LedgerFencedError, LedgerClosedError))


@pytest.mark.parametrize("entry_id", [-1, None, "1", True, 2**63])
def test_an_impossible_entry_id_is_refused_by_name(client: BookKeeper, entry_id: int) -> None:
    with client.create_ledger_adv() as writer:
        with pytest.raises(ConfigError, match="an entry id"):
            writer.append(entry_id, b"x")
        with pytest.raises(ConfigError, match="an entry id"):
            writer.append_batch(entry_id, [b"x"])


def test_payloads_are_checked_as_those_of_other_writers(client: BookKeeper) -> None:
    with client.create_ledger_adv() as writer:
        with pytest.raises(ConfigError, match="it must be bytes"):
            writer.append(0, "text")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="at least one"):
            writer.append_batch(0, [])
        with pytest.raises(EntryTooLargeError):
            writer.append(0, b"x" * (17 * 1024 * 1024))
