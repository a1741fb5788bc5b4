"""Leaders of logs over real bookies: what they confirm is in the log, whoever comes after them."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from bk_spark import bookkeeper
from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookieUnavailableError, LedgerFencedError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log, LogPosition
from bk_spark.log.stored.values import CommittedLedger, OpenLedger
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.cluster.live_ledgers import BRISK, suspended
from tests.unit.log.leader.leader_model import eventually


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[BookKeeper]:
    """Another client, as of another process."""
    with BookKeeper(cluster.metadata_uri, BRISK) as other:
        yield other


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"log-{uuid.uuid4().hex}", create=True)


def content(log: Log) -> list[tuple[LogPosition, bytes]]:
    found = []
    for batch in log.read():
        for ledger_id, entry_id, payload in zip(*(batch.column(n) for n in ("ledger_id", "entry_id", "payload")), strict=True):
            found.append((LogPosition(ledger_id.as_py(), entry_id.as_py()), payload.as_py()))
    return found


def payloads(log: Log) -> list[bytes]:
    return [payload for _, payload in content(log)]


def ledger_of(client: BookKeeper, *entries: bytes) -> int:
    with client.create_ledger() as writer:
        writer.append_batch(entries)
    return writer.ledger_id


def test_what_is_appended_through_rolls_is_read_back_in_order_at_the_places_that_were_told(log: Log) -> None:
    told: list[tuple[Future[LogPosition], bytes]] = []
    with log.open_writer(roll_bytes=10_000) as writer:
        for number in range(2000):
            told.append((writer.append_async(b"%d" % number), b"%d" % number))
            if number % 500 == 0:
                writer.roll()
        writer.append_batch([b"x", b"y"])
    assert content(log)[:-2] == [(future.result(), payload) for future, payload in told]
    assert payloads(log)[-2:] == [b"x", b"y"]
    assert all(isinstance(one, CommittedLedger) for one in log.ledgers())
    assert len(log.ledgers()) > 4


def test_appends_of_many_threads_are_all_there_each_thread_s_in_its_order_across_rolls(log: Log) -> None:
    with log.open_writer(roll_bytes=5_000) as writer, ThreadPoolExecutor(4) as pool:

        def append(thread: int) -> None:
            futures = [writer.append_async(b"%d %d" % (thread, number)) for number in range(300)]
            assert [future.result() for future in futures]

        for done in [pool.submit(append, thread) for thread in range(4)]:
            done.result()
    found = [payload.split() for payload in payloads(log)]
    for thread in range(4):
        assert [number for who, number in found if who == b"%d" % thread] == [b"%d" % number for number in range(300)]


def test_a_log_is_read_while_its_leader_writes_and_the_leader_is_not_disturbed(log: Log, other: BookKeeper) -> None:
    follower = other.open_log(log.name)
    with log.open_writer() as writer:
        writer.append_batch([b"a", b"b"])
        eventually(lambda: payloads(follower) == [b"a", b"b"])
        writer.roll()
        writer.append(b"c")
        eventually(lambda: payloads(follower) == [b"a", b"b", b"c"])
        assert isinstance(follower.ledgers()[-1], OpenLedger)


def test_a_displaced_leader_confirms_nothing_more_and_what_it_had_confirmed_stands_before_what_the_next_one_writes(
    log: Log, other: BookKeeper
) -> None:
    """Docs/rules.md, protocol rule 60."""
    first = log.open_writer()
    for payload in (b"a", b"b"):
        first.append(payload)
        first.roll()
    first.append(b"c")
    with other.open_log(log.name).open_writer() as second:
        second.append(b"d")
        for call in (lambda: first.append(b"lost"), first.roll, first.close):
            with pytest.raises(LedgerFencedError):
                call()
        assert payloads(log)[:3] == [b"a", b"b", b"c"]
    with log.open_writer() as third:
        third.append(b"e")
    assert payloads(log) == [b"a", b"b", b"c", b"d", b"e"]


def test_what_a_leader_left_open_is_recovered_by_recover_and_read_to_its_end(log: Log, other: BookKeeper) -> None:
    writer = log.open_writer()
    writer.append(b"a")
    writer.roll()
    writer.append_batch([b"b", b"c"])
    found = other.open_log(log.name)
    version = found.recover()
    assert version is not None
    assert [one.last_entry_id for one in version.closed] == [1]
    assert payloads(found) == [b"a", b"b", b"c"]
    assert found.recover() is None


def unfenced(context: object, ledgers: object, metadata: LedgerMetadata, version: int) -> LedgerMetadata:
    """A recovery that asks nobody and fences nobody: the ledger ends after its first entry."""
    return metadata.closed_at(0, 1)


@pytest.mark.parametrize("holds", [True, False], ids=["as shipped", "without the rule"])
@pytest.mark.parametrize("displace", ["append_ledgers", "open_writer"])
def test_nothing_is_confirmed_behind_which_a_commit_has_listed_ledgers(
    log: Log, other: BookKeeper, monkeypatch: pytest.MonkeyPatch, holds: bool, displace: str
) -> None:
    """Log rule 2: an append lands behind a live leader's open ledger, and the leader goes on."""
    leader, found = log.open_writer(), other.open_log(log.name)
    told = [(leader.append(b"a"), b"a")]
    if not holds:
        monkeypatch.setattr(bookkeeper, "recovered", unfenced)
    if displace == "append_ledgers":
        found.append_ledgers([ledger_of(other, b"z")])
    else:
        with found.open_writer() as writer:
            writer.append(b"z")
    try:
        told.append((leader.append(b"b"), b"b"))
    except LedgerFencedError:
        assert holds
    assert payloads(found)[-1] == b"z"
    assert (set(told) <= set(content(found))) == holds


def test_a_log_is_not_taken_over_while_its_leader_s_ledger_cannot_be_recovered(cluster: LocalCluster, log: Log) -> None:
    """Docs/rules.md, protocol rule 60: nothing is served before the compare-and-set, and that not before the fence."""
    hasty = dataclasses.replace(BRISK, recovery_timeout_s=2.0)
    log.open_writer().append(b"a")
    with BookKeeper(cluster.metadata_uri, hasty) as other, suspended(*cluster.bookies[:2]):
        with pytest.raises(BookieUnavailableError):
            other.open_log(log.name).recover()
        assert len(log.versions()) == 1
    assert [type(one) for one in log.ledgers()] == [OpenLedger]


def test_leaders_of_many_threads_take_the_log_from_each_other_and_agree_on_its_order(log: Log, other: BookKeeper) -> None:
    """Log rules 2 and 3."""
    told: list[tuple[LogPosition, bytes]] = []
    lock = threading.Lock()

    def lead(mine: Log, who: int) -> None:
        for turn in range(4):
            writer = mine.open_writer(roll_bytes=200)
            try:
                for number in range(20):
                    payload = b"%d %d %d" % (who, turn, number)
                    place = writer.append(payload)
                    with lock:
                        told.append((place, payload))
            except LedgerFencedError:
                continue

    with ThreadPoolExecutor(3) as pool:
        logs = (log, other.open_log(log.name), log)
        for done in [pool.submit(lead, one, who) for who, one in enumerate(logs)]:
            done.result()
    log.recover()
    found = content(log)
    assert dict(told).items() <= dict(found).items()
    assert len({payload for _, payload in found}) == len(found)
    order = {place: index for index, (place, _) in enumerate(found)}
    for who in range(3):
        places = [order[place] for place, payload in told if payload.startswith(b"%d " % who)]
        assert places == sorted(places)


def test_truncation_lets_a_leader_s_first_ledgers_go_while_it_writes(log: Log) -> None:
    with log.open_writer() as writer:
        for number in range(4):
            place = writer.append(b"%d" % number)
            if number < 3:
                writer.roll()
        log.truncate(place)
        assert payloads(log)[-1:] in ([b"3"], [])
        writer.append(b"4")
    assert payloads(log) == [b"3", b"4"]


def test_the_ledgers_of_a_log_with_a_password_are_read_with_it_alone(client: BookKeeper, log: Log) -> None:
    locked = client.open_log(log.name, password=b"secret")
    with locked.open_writer(digest_type="HMAC") as writer:
        writer.append(b"a")
    assert payloads(locked) == [b"a"]
    with pytest.raises(UnauthorizedAccessError):
        payloads(log)


def in_callback(future: Future[Any], call: Callable[[], Any]) -> list[BaseException | None]:
    """What ``call`` raises in the callback of ``future``."""
    outcome: list[BaseException | None] = []

    def run(_: Future[Any]) -> None:
        try:
            call()
        except BaseException as problem:
            outcome.append(problem)
        else:
            outcome.append(None)

    future.add_done_callback(run)
    eventually(lambda: bool(outcome))
    return outcome


def test_an_append_in_a_callback_is_taken(log: Log) -> None:
    with log.open_writer() as writer:
        assert in_callback(writer.append_async(b"a"), lambda: writer.append_async(b"b")) == [None]
    assert payloads(log) == [b"a", b"b"]
