"""Readers that follow a ledger while it is written, over real bookies."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookieUnavailableError, ConfigError, NoSuchEntryError, NoSuchLedgerError
from bk_spark.local.cluster import LocalCluster
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, bookies_of, eventually_last_add_confirmed, payloads, suspended

TALKING = dataclasses.replace(BRISK, explicit_lac_s=60.0)
"""A writer that tells its readers only by its next entry."""


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def talking(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, TALKING) as client:
        yield client


def _started(call: Callable[[], int]) -> Future[int]:
    """Run a call that waits on a thread of its own; the future holds what it gave back."""
    future: Future[int] = Future()
    started = threading.Event()

    def run() -> None:
        started.set()
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    started.wait(DEADLINE_S)
    return future


def test_the_last_add_confirmed_trails_by_one_until_the_next_entry(talking: BookKeeper) -> None:
    """Ref: situation 48."""
    with talking.create_ledger() as writer:
        reader = talking.open_ledger(writer.ledger_id, recover=False)
        for entry_id in range(5):
            writer.append(b"x")
            assert (reader.read_last_add_confirmed(), reader.try_read_last_add_confirmed()) == (entry_id - 1, entry_id - 1)
        with pytest.raises(NoSuchEntryError, match="no entry 4"):
            list(reader.read(0, 4))


def test_an_idle_writers_last_entry_becomes_visible(client: BookKeeper) -> None:
    """By its explicit last add confirmed. Ref: situation 23."""
    with client.create_ledger() as writer:
        writer.append_batch([b"a", b"b"])
        reader = client.open_ledger(writer.ledger_id, recover=False)
        eventually_last_add_confirmed(reader, 1)
        assert not reader.is_closed
        assert payloads(reader) == [b"a", b"b"]


def test_a_wait_ends_when_the_last_add_confirmed_moves_and_shows_no_more_than_it(talking: BookKeeper) -> None:
    """Ref: situation 46."""
    with talking.create_ledger() as writer:
        writer.append(b"a")
        reader = talking.open_ledger(writer.ledger_id, recover=False)
        waiting = _started(lambda: reader.wait_for_last_add_confirmed(-1, DEADLINE_S))
        assert not waiting.done()
        writer.append(b"b")
        assert waiting.result(DEADLINE_S / 3) == 0
        assert payloads(reader) == [b"a"]
        assert not reader.is_closed


def test_a_wait_ends_when_the_writer_closes(talking: BookKeeper) -> None:
    """Ref: situation 46."""
    writer = talking.create_ledger()
    writer.append(b"a")
    reader = talking.open_ledger(writer.ledger_id, recover=False)
    waiting = _started(lambda: reader.wait_for_last_add_confirmed(0, DEADLINE_S))
    writer.close()
    assert waiting.result(DEADLINE_S / 3) == 0
    assert (reader.is_closed, reader.length) == (True, 1)
    assert reader.wait_for_last_add_confirmed(0, DEADLINE_S) == 0


def test_a_wait_ends_when_another_client_recovers_the_ledger(client: BookKeeper, talking: BookKeeper) -> None:
    """Ref: situation 46."""
    writer = talking.create_ledger()
    writer.append(b"a")
    reader = talking.open_ledger(writer.ledger_id, recover=False)
    waiting = _started(lambda: reader.wait_for_last_add_confirmed(5, DEADLINE_S))
    client.open_ledger(writer.ledger_id)
    assert waiting.result(DEADLINE_S / 3) == 0
    assert reader.is_closed


def test_a_wait_ends_when_its_time_is_up(talking: BookKeeper) -> None:
    """Ref: situation 46."""
    with talking.create_ledger() as writer:
        writer.append(b"a")
        reader = talking.open_ledger(writer.ledger_id, recover=False)
        started = time.monotonic()
        assert reader.wait_for_last_add_confirmed(0, 0.5) == -1
        assert 0.4 < time.monotonic() - started < DEADLINE_S / 3
        assert reader.wait_for_last_add_confirmed(-1, 0) == -1


def test_a_wait_for_what_is_known_already_asks_nobody(client: BookKeeper, wide_cluster: LocalCluster) -> None:
    with client.create_ledger() as writer:
        writer.append_batch([b"a", b"b"])
        reader = client.open_ledger(writer.ledger_id, recover=False)
        eventually_last_add_confirmed(reader, 1)
        with suspended(*wide_cluster.bookies):
            assert reader.wait_for_last_add_confirmed(0, DEADLINE_S) == 1


def test_a_wait_sees_that_its_ledger_was_deleted(talking: BookKeeper) -> None:
    with talking.create_ledger() as writer:
        writer.append(b"a")
    reader = talking.open_ledger(writer.ledger_id, recover=False)
    assert reader.wait_for_last_add_confirmed(5, DEADLINE_S) == 0
    open_writer = talking.create_ledger()
    reader = talking.open_ledger(open_writer.ledger_id, recover=False)
    talking.delete_ledger(open_writer.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        reader.wait_for_last_add_confirmed(-1, 0.3)


def test_any_answer_is_enough_where_a_quorum_cannot_be_had(client: BookKeeper, wide_cluster: LocalCluster) -> None:
    with client.create_ledger() as writer:
        writer.append_batch([b"a", b"b"])
        reader = client.open_ledger(writer.ledger_id, recover=False)
        eventually_last_add_confirmed(reader, 1)
        with suspended(*bookies_of(wide_cluster, writer.metadata)[:2]):
            with pytest.raises(BookieUnavailableError):
                reader.read_last_add_confirmed()
            assert reader.try_read_last_add_confirmed() == 1


def test_a_handle_learns_that_its_ledger_was_closed(talking: BookKeeper) -> None:
    writer = talking.create_ledger()
    writer.append(b"abc")
    readers = [talking.open_ledger(writer.ledger_id, recover=False) for _ in range(2)]
    writer.close()
    asks: list[Callable[[], int]] = [readers[0].read_last_add_confirmed, readers[1].try_read_last_add_confirmed]
    for reader, ask in zip(readers, asks, strict=True):
        assert (reader.is_closed, reader.length) == (False, 0)
        assert ask() == 0
        assert (reader.is_closed, reader.length) == (True, 3)
        assert payloads(reader) == [b"abc"]


def test_entries_above_the_last_add_confirmed_are_read_unconfirmed_as_far_as_they_are_there(talking: BookKeeper) -> None:
    with talking.create_ledger() as writer:
        writer.append(b"a")
        reader = talking.open_ledger(writer.ledger_id, recover=False)
        [batch] = list(reader.read_unconfirmed(0, 0))
        assert batch.column("payload").to_pylist() == [b"a"]
        assert reader.last_add_confirmed == -1
        with pytest.raises(NoSuchEntryError, match="no entry 1"):
            list(reader.read_unconfirmed(0, 1))
    reader.read_last_add_confirmed()
    with pytest.raises(NoSuchEntryError, match="no entry 1"):
        reader.read_unconfirmed(0, 1)


def test_a_read_that_fails_leaves_the_handle_with_the_newest_metadata(talking: BookKeeper) -> None:
    """The read has to look whether another ensemble holds the entry, and finds the ledger closed."""
    writer = talking.create_ledger()
    writer.append(b"a")
    reader = talking.open_ledger(writer.ledger_id, recover=False)
    writer.close()
    with pytest.raises(NoSuchEntryError, match="no entry 1"):
        list(reader.read_unconfirmed(0, 1))
    assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 0, 1)


def test_a_tailing_reader_gets_each_entry_once_and_the_end(client: BookKeeper) -> None:
    """As docs/guide/python.md shows it."""
    writer = client.create_ledger()
    reader = client.open_ledger(writer.ledger_id, recover=False)
    seen: list[bytes] = []

    def tail() -> int:
        position = 0
        while position <= reader.last_add_confirmed or not reader.is_closed:
            last = reader.wait_for_last_add_confirmed(beyond=position - 1, timeout_s=DEADLINE_S)
            if last >= position:
                seen.extend(payloads(reader, position, last))
                position = last + 1
        return position

    tailing = _started(tail)
    expected = [b"%d" % i for i in range(200)]
    for start in range(0, 200, 10):
        writer.append_batch(expected[start : start + 10])
    writer.close()
    assert tailing.result(DEADLINE_S / 3) == 200
    assert seen == expected


@pytest.mark.parametrize(("beyond", "timeout_s"), [(-2, 1), (0.5, 1), (0, -1), (0, "1"), (0, float("inf")), (0, 1e9)])
def test_an_impossible_wait_is_refused_by_name(client: BookKeeper, beyond: int, timeout_s: float) -> None:
    with client.create_ledger() as writer:
        reader = client.open_ledger(writer.ledger_id, recover=False)
        with pytest.raises(ConfigError, match=r"beyond|timeout_s"):
            reader.wait_for_last_add_confirmed(beyond, timeout_s)
