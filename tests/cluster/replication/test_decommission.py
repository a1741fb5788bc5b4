"""Taking a bookie out of a cluster of real processes. Ref: situation 85."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata import registration
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.store import MetadataStore
from bk_spark.replication.decommission import DecommissionOptions, _Decommissioning, decommission
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads

HASTY = DecommissionOptions(AutoRecoveryConfig(open_fragment_grace_s=0.05), stop_timeout_s=DEADLINE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One that bookies leave and join: every test takes the oldest one out, and brings a new one."""
    with LocalCluster(bookies=4) as made:
        yield made


@pytest.fixture
def leaving(cluster: LocalCluster) -> LocalBookie:
    with BookKeeper(cluster.metadata_uri) as client:
        there = {one.bookie_id for one in client.list_bookies()}
    while len(there) < 4:
        there.add(cluster.add_bookie().bookie_id)
    return next(one for one in cluster.bookies if one.bookie_id in there)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, replace(BRISK, read_timeout_s=10.0)) as made:
        yield made


def _held_by(client: BookKeeper, bookie: LocalBookie, ledgers: int, size: int = 1) -> list[int]:
    """Closed ledgers of five entries that name the bookie."""
    named: list[int] = []
    while len(named) < ledgers:
        with client.create_ledger(3, 2, 2) as writer:
            writer.append_batch([b"%d" % one * size for one in range(5)])
        if bookie.bookie_id in writer.metadata.last_fragment.ensemble:
            named.append(writer.ledger_id)
    return named


def _lose(client: BookKeeper, bookie: LocalBookie) -> None:
    bookie.kill()
    unregister(client.metadata_store, client.znodes, bookie.bookie_id)


def _assert_left(client: BookKeeper, bookie: LocalBookie) -> None:
    """No ledger names it, and it is not of the cluster any more."""
    for metadata in client.existing_ledgers(list(client.list_ledgers())):
        assert not any(bookie.bookie_id in fragment.ensemble for fragment in metadata.fragments)
    path = client.znodes.cookie(bookie.bookie_id)
    assert client.metadata_store.get_many([path]) == [None]
    assert bookie.bookie_id not in {one.bookie_id for one in client.list_bookies()}


def _quiet(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


def _time_is_over(client: BookKeeper, bookie: LocalBookie) -> None:
    with pytest.raises(ConfigError, match=r"its time of 1e-06 s is over"):
        decommission(client, bookie.bookie_id, _quiet, replace(HASTY, timeout_s=1e-6))


def _names_what_nobody_else_has(client: BookKeeper, bookie: LocalBookie, alone: int, others: list[int]) -> None:
    """Nothing is removed, and the run ends."""
    said: list[str] = []
    with pytest.raises(ConfigError, match=r"still named by 1 ledgers.*--force gives up what cannot be copied"):
        decommission(client, bookie.bookie_id, _quiet, HASTY, said.append)
    assert [one for one in said if one.startswith(f"ledger {alone} still needs bookie {bookie.bookie_id}: ")]
    assert not [one for one in said for other in others if f"ledger {other} " in one]


def _started_and_stopped_meanwhile(client: BookKeeper, bookie: LocalBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers that were made meanwhile may name it. Each start changes the cookie, by its boot number."""
    path = client.znodes.cookie(bookie.bookie_id)
    look = _Decommissioning._pass

    def look_and_start(self: _Decommissioning, is_alive: bool) -> Any:
        result = look(self, is_alive)
        cookie = client.metadata_store.get(path)
        client.metadata_store.set(path, cookie.value, cookie.version)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(_Decommissioning, "_pass", look_and_start)
        with pytest.raises(ConfigError, match="started meanwhile"):
            decommission(client, bookie.bookie_id, _quiet, replace(HASTY, forced=True))


def _removed_meanwhile(client: BookKeeper, bookie: LocalBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cookie, by somebody else; it is there again afterwards."""
    path = client.znodes.cookie(bookie.bookie_id)
    cookie = client.metadata_store.get(path)

    def remove_meanwhile(store: MetadataStore, *_: object) -> None:
        store.delete(path, store.get(path).version)

    with monkeypatch.context() as patched:
        patched.setattr(registration, "lookup", remove_meanwhile)
        with pytest.raises(ConfigError, match="there is no cookie of it"):
            registration.remove_cookie(client.metadata_store, client.znodes, bookie.bookie_id)
    client.metadata_store.create(path, cookie.value)


def test_a_dead_bookie_keeps_its_cookie_whatever_a_run_ends_with_until_one_goes_through_and_readers_notice_nothing(
    client: BookKeeper, leaving: LocalBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time was over, its only copy of a ledger is lost, it was started and stopped, somebody else removed its cookie."""
    alone, named = _alone_on(client, leaving, closed=True), _held_by(client, leaving, 8)
    cookie = client.znodes.cookie(leaving.bookie_id)
    with client.open_ledger(named[0]) as reader:
        _lose(client, leaving)
        _time_is_over(client, leaving)
        assert client.metadata_store.get(cookie)
        _names_what_nobody_else_has(client, leaving, alone, named)
        assert client.metadata_store.get(cookie)
        _started_and_stopped_meanwhile(client, leaving, monkeypatch)
        assert client.metadata_store.get(cookie)
        _removed_meanwhile(client, leaving, monkeypatch)
        report = decommission(client, leaving.bookie_id, _quiet, replace(HASTY, forced=True))
        assert payloads(reader) == [b"%d" % one for one in range(5)]
    assert ([one.ledger_id for one in report.given_up], report.given_up_ledgers) == ([alone], 1)
    client.delete_ledger(alone)
    _assert_left(client, leaving)
    for ledger_id in named:
        with client.open_ledger(ledger_id) as reader:
            assert payloads(reader) == [b"%d" % one for one in range(5)]


def _not_stopped_in_time(client: BookKeeper, bookie: LocalBookie) -> None:
    """It stays, and is what it was."""
    options = DecommissionOptions(HASTY.recovery, stop_timeout_s=0.1)
    with pytest.raises(ConfigError, match="stop it, and run this again"):
        decommission(client, bookie.bookie_id, _quiet, options)
    found = {one.bookie_id: one for one in client.list_bookies()}
    assert not found[bookie.bookie_id].read_only
    assert client.metadata_store.get(client.znodes.cookie(bookie.bookie_id))


def test_a_bookie_that_runs_takes_nothing_new_is_copied_from_and_leaves_when_it_is_stopped(
    client: BookKeeper, leaving: LocalBookie
) -> None:
    """Also what it alone holds; a writer that lives goes on, its ledger is not fenced. Not stopped in time it stays."""
    _not_stopped_in_time(client, leaving)
    named = _held_by(client, leaving, 8)
    patient = DecommissionOptions(AutoRecoveryConfig(open_fragment_grace_s=2.0), stop_timeout_s=DEADLINE_S)
    alone = [_alone_on(client, leaving, closed) for closed in (True, False)]
    writer = _open_on(client, leaving)
    asked: list[str] = []

    def on_asked(message: str) -> None:
        asked.append(message)
        for _ in range(5):
            with client.create_ledger() as new:
                assert leaving.bookie_id not in new.metadata.last_fragment.ensemble
        assert writer.append(b"1") == 1
        leaving.stop()
        assert writer.append(b"2") == 2

    assert decommission(client, leaving.bookie_id, _quiet, patient, on_asked).ledgers >= len(named) + len(alone)
    assert writer.append(b"3") == 3
    writer.close()
    assert len(asked) == 1
    assert leaving.bookie_id in asked[0]
    _assert_left(client, leaving)
    for ledger_id, expected in [*((one, [b"x"]) for one in alone), (writer.ledger_id, [b"0", b"1", b"2", b"3"])]:
        with client.open_ledger(ledger_id, recover=False) as reader:
            assert reader.metadata.state is LedgerState.CLOSED
            assert payloads(reader) == expected
    for ledger_id in alone:  # their only copies are on one bookie again, and no other test could lose that one
        client.delete_ledger(ledger_id)


def test_without_enough_other_bookies_nothing_is_removed_and_the_numbers_are_told(
    client: BookKeeper, cluster: LocalCluster, leaving: LocalBookie
) -> None:
    with client.create_ledger(4, 4, 3) as writer:
        writer.append(b"x")
    _lose(client, leaving)
    with pytest.raises(ConfigError, match=r"needs 1 bookies and 0 can be used.*run this again"):
        decommission(client, leaving.bookie_id, _quiet, HASTY)
    assert client.metadata_store.get(client.znodes.cookie(leaving.bookie_id))
    cluster.add_bookie()
    decommission(client, leaving.bookie_id, _quiet, HASTY)
    _assert_left(client, leaving)
    client.delete_ledger(writer.ledger_id)  # no cluster of four could spare a bookie of it


def test_an_id_that_nothing_knows_is_refused(client: BookKeeper) -> None:
    with pytest.raises(ConfigError, match="there is no cookie of it"):
        decommission(client, "127.0.0.1:1-nobody", _quiet, HASTY)


def test_the_command_may_be_killed_and_run_again_while_clients_work(
    client: BookKeeper, cluster: LocalCluster, leaving: LocalBookie
) -> None:
    """Twice at once, too: the ledgers' locks keep both apart."""
    named = _held_by(client, leaving, 10, size=20_000)
    _lose(client, leaving)
    killed = _command(cluster, leaving, "--bytes-per-s", "400000")
    try:
        _eventually(lambda: 0 < _left(client, leaving, named) < 10)
    finally:
        killed.kill()
        killed.wait(DEADLINE_S)
    assert _left(client, leaving, named) > 0
    ended = threading.Event()
    seen: list[bytes] = []

    def work() -> None:
        while not ended.is_set():
            with client.create_ledger(3, 2, 2) as writer:
                writer.append(b"new")
            for ledger_id in [*named, writer.ledger_id]:
                with client.open_ledger(ledger_id) as reader:
                    seen.extend(payloads(reader))

    clients = threading.Thread(target=work)
    clients.start()
    both = [_command(cluster, leaving, "--json") for _ in range(2)]
    ends = [(one.wait(2 * DEADLINE_S), *one.communicate()) for one in both]
    ended.set()
    clients.join(DEADLINE_S)
    assert {code for code, _, _ in ends} <= {0, 1}
    assert any(code == 0 and leaving.bookie_id in out for code, out, _ in ends), [err for _, _, err in ends]
    assert all(code == 0 or "there is no cookie of it" in err for code, _, err in ends), ends
    _assert_left(client, leaving)
    assert set(seen) == {b"new", *(b"%d" % one * 20_000 for one in range(5))}


def _alone_on(client: BookKeeper, bookie: LocalBookie, closed: bool) -> int:
    """A ledger with one entry that the bookie alone has. None is left that another one alone has, which a later test loses."""
    while True:
        writer = client.create_ledger(1, 1, 1)
        if bookie.bookie_id in writer.metadata.last_fragment.ensemble:
            writer.append(b"x")
            if closed:
                writer.close()
            return writer.ledger_id
        writer.close()
        client.delete_ledger(writer.ledger_id)


def _open_on(client: BookKeeper, bookie: LocalBookie) -> WriteHandle:
    """A writer with one entry whose ensemble has the bookie."""
    while True:
        writer = client.create_ledger()
        if bookie.bookie_id in writer.metadata.last_fragment.ensemble:
            writer.append(b"0")
            return writer
        writer.close()


def _left(client: BookKeeper, bookie: LocalBookie, named: list[int]) -> int:
    found = client.ledger_metadata_many(named)
    return sum(any(bookie.bookie_id in fragment.ensemble for fragment in one.fragments) for one in found)


def _command(cluster: LocalCluster, bookie: LocalBookie, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "bk_spark.cli", "bookie", "decommission", bookie.bookie_id]
    arguments = ["--metadata", cluster.metadata_uri, "--open-grace-s", "0.05", *options]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)
