"""Bookies that joined later take their share, over real processes. Ref: DESIGN.md, "A balance moves copies"."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.progress import no_progress
from bk_spark.replication.balance import BalanceOptions, BalanceReport, balance
from bk_spark.replication.balance_plan import BalancePlan, BookieCapacity
from bk_spark.replication.decommission import DecommissionOptions, decommission
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.wire.messages import AdminOperation
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, payloads, result_of, start, suspended
from tests.cluster.replication.test_rereplicator import assert_whole, held

PATIENT = replace(BRISK, read_timeout_s=3.0, add_timeout_s=10.0)
"""A bookie that is merely slow answers, and is not replaced."""

LEDGERS = 20
ENTRIES = [b"%d" % one * 20_000 for one in range(5)]
SLOW = BalanceOptions(recovery=AutoRecoveryConfig(replicate_bytes_per_s=400_000, parallel_ledgers=4))
"""Some four copies a second."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Three bookies run, in racks a, b and c, with all ledgers. Three more, in a, b and b, are started by the tests."""
    with LocalCluster(bookies=6, start_bookies=False) as made:
        for bookie, rack in zip(made.bookies, "abcabb", strict=True):
            bookie.config = replace(bookie.config, rack=f"/{rack}")
        start(*made.bookies[:3])
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, PATIENT) as made:
        yield made


@pytest.fixture
def ledgers(client: BookKeeper) -> list[int]:
    return [_written(client) for _ in range(LEDGERS)]


def _written(client: BookKeeper) -> int:
    with client.create_ledger(3, 3, 2) as writer:
        writer.append_batch(ENTRIES)
    return writer.ledger_id


def _copies(client: BookKeeper, *bookies: LocalBookie) -> int:
    """What the metadata say that these hold."""
    names = {one.bookie_id for one in bookies}
    found = client.existing_ledgers(list(client.list_ledgers()))
    return sum(len(names.intersection(fragment.ensemble)) for one in found for fragment in one.fragments)


def _assert_sound(client: BookKeeper, cluster: LocalCluster, ledgers: list[int]) -> None:
    """Every bookie that a ledger names has its entries, in three racks, and readers find them."""
    racks = {bookie.bookie_id: bookie.config.rack for bookie in cluster.bookies}
    for ledger_id in ledgers:
        assert_whole(client, ledger_id, ())
        [fragment] = client.ledger_metadata(ledger_id).fragments
        assert {racks[one] for one in fragment.ensemble} == {"/a", "/b", "/c"}
        with client.open_ledger(ledger_id) as reader:
            assert payloads(reader) == ENTRIES


def _by_id(report: BalanceReport) -> dict[str, tuple[float | None, float | None]]:
    return {one.bookie_id: (one.before, one.after) for one in report.bookies}


def _eventually(what: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def _under_way(
    client: BookKeeper, new: list[LocalBookie], options: BalanceOptions = SLOW, say: Callable[[str], None] = lambda one: None
) -> Iterator[Future[BalanceReport]]:
    """A balance that has moved something, and has more to move."""
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(balance, client, no_progress, options, say)
        _eventually(lambda: running.done() or _copies(client, *new) > 0)
        assert not running.done()
        yield running
        assert running.done() or running.exception(DEADLINE_S) is None


def _command(cluster: LocalCluster, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "bk_spark.cli", "bookie", "balance", "--metadata", cluster.metadata_uri, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_new_bookies_get_copies_until_nobody_is_overfull_and_a_dry_run_says_so_before(
    cluster: LocalCluster, client: BookKeeper, ledgers: list[int]
) -> None:
    """Bookie c gives nothing, since no other one is in its rack. An open ledger and a marked one stay as they are."""
    old, new = cluster.bookies[:3], cluster.bookies[3:]
    marks = UnderReplication(client.metadata_store, client.znodes)
    marked = _written(client)
    marks.mark(marked, [old[0].bookie_id])
    writer = client.create_ledger(3, 3, 2)
    writer.append_batch(ENTRIES)
    before: list[LedgerMetadata] = client.ledger_metadata_many([*ledgers, marked, writer.ledger_id])
    assert balance(client, no_progress).copies == 0
    start(*new)
    dry = balance(client, no_progress, BalanceOptions(is_dry=True))
    assert client.ledger_metadata_many([*ledgers, marked, writer.ledger_id]) == before
    assert client.metadata_store.get_many([client.znodes.balance]) == [None]
    copy = len(b"".join(ENTRIES))
    part = balance(client, no_progress, BalanceOptions(max_bytes=3 * copy + 1))
    assert (part.copies, _copies(client, *new), part.failed) == (3, 3, 0)
    assert part.nbytes >= 3 * copy
    rest = balance(client, no_progress)
    assert part.copies + rest.copies == dry.copies
    assert {name: after for name, (_, after) in _by_id(rest).items()} == {n: after for n, (_, after) in _by_id(dry).items()}
    assert all(after is not None and after <= 1.1 * rest.mean for after in (_by_id(rest)[one.bookie_id][1] for one in old[:2]))
    assert _by_id(rest)[old[2].bookie_id] == _by_id(dry)[old[2].bookie_id]
    assert balance(client, no_progress).copies == 0
    assert client.ledger_metadata_many([marked, writer.ledger_id]) == before[-2:]
    writer.close()
    _assert_sound(client, cluster, [*ledgers, marked, writer.ledger_id])
    _assert_space_is_freed(client, old[0], ledgers)


def _assert_space_is_freed(client: BookKeeper, source: LocalBookie, ledgers: list[int]) -> None:
    """At the garbage collection of the bookie that gave: it holds what the metadata say, and no more."""
    assert client.administer_bookie(source.bookie_id, AdminOperation.GC_RUN).detail == ""
    gone = next(one for one in client.ledger_metadata_many(ledgers) if source.bookie_id not in one.bookies)
    ensemble = (source.bookie_id, *gone.fragments[0].ensemble[1:])
    asked = replace(gone, fragments=(replace(gone.fragments[0], ensemble=ensemble),))
    _eventually(lambda: held(client, asked, asked.fragments[0], 0, 4) == [])


def test_the_command_prints_how_full_bookies_are_and_is_interrupted_and_killed_and_run_again(
    cluster: LocalCluster, client: BookKeeper, ledgers: list[int]
) -> None:
    new = cluster.bookies[3:]
    start(*new)
    moved = 0
    for end in (signal.SIGINT, signal.SIGKILL):
        running = _command(cluster, "--bytes-per-s", "400k", "--parallel-ledgers", "4")
        try:
            _eventually(lambda so_far=moved: _copies(client, *new) > so_far)  # type: ignore[misc]
            assert running.poll() is None
        finally:
            running.send_signal(end)
            _, err = running.communicate(timeout=DEADLINE_S)
        assert running.returncode == -end, err
        moved = _copies(client, *new)
        assert 0 < moved < LEDGERS
        _assert_sound(client, cluster, ledgers)

    def ended() -> bool:
        """The one that was killed counts as running until its session ends."""
        nonlocal out
        last = _command(cluster, "--json", "--max-bytes", "1g", "--tolerance", "0.2")
        out, err = last.communicate(timeout=DEADLINE_S)
        assert last.returncode == 0 or "a balance is running as" in err
        return last.returncode == 0

    out = ""
    _eventually(ended)
    *bookies, totals = [json.loads(line) for line in out.splitlines()]
    assert {one["bookie_id"] for one in bookies} == {one.bookie_id for one in cluster.bookies}
    assert totals["copies"] == _copies(client, *new) - moved > 0
    assert max(one["after"] for one in bookies if one["rack"] != "/c") <= 1.2 * totals["mean"]
    _assert_sound(client, cluster, ledgers)
    shown = _command(cluster, "--dry-run")
    out, _ = shown.communicate(timeout=DEADLINE_S)
    assert out.splitlines()[0].split() == ["BOOKIE_ID", "MODE", "RACK", "CAPACITY", "BEFORE", "AFTER"]


def test_a_bookie_that_does_not_answer_is_named_and_neither_gives_nor_takes_nor_do_its_ledgers_move(
    cluster: LocalCluster, client: BookKeeper, ledgers: list[int]
) -> None:
    """With AutoRecovery disabled, at first or meanwhile, and beside another balance, nothing moves: it says why."""
    old, new = cluster.bookies[:3], cluster.bookies[3:]
    start(*new)
    said: list[str] = []
    with suspended(new[0]):
        report = balance(client, no_progress, say=said.append)
    assert f"bookie {new[0].bookie_id} does not tell its space: it neither gives copies nor takes any" in said
    assert _by_id(report)[new[0].bookie_id] == (None, None)
    assert _copies(client, new[0]) == 0 < report.copies == _copies(client, *new)
    with suspended(old[2]):
        report = balance(client, no_progress, say=said.append)
    assert report.copies == 0
    assert f"{LEDGERS} ledgers name bookies that are not registered, or do not tell their space: they are left alone" in said
    marks = UnderReplication(client.metadata_store, client.znodes)
    running = _command(cluster, "--bytes-per-s", "200k")
    _eventually(lambda: _copies(client, new[0]) > 0)
    with pytest.raises(ConfigError, match="a balance is running as"):
        balance(client, no_progress)
    assert balance(client, no_progress, BalanceOptions(is_dry=True)).copies > 0
    marks.disable()
    _, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, "AutoRecovery is disabled" in err) == (1, True)
    with pytest.raises(ConfigError, match="AutoRecovery is disabled"):
        balance(client, no_progress)
    marks.enable()
    assert balance(client, no_progress).copies > 0
    _assert_sound(client, cluster, ledgers)


def test_targets_that_die_or_become_read_only_and_ledgers_that_are_deleted_meanwhile_cost_no_copy(
    cluster: LocalCluster, client: BookKeeper, ledgers: list[int]
) -> None:
    first, second, third = cluster.bookies[3:]
    start(first, second, third)
    with _under_way(client, [second, third]) as running:
        second.kill()
        client.administer_bookie(first.bookie_id, AdminOperation.READ_ONLY_ON)
        _eventually(lambda: first.bookie_id in {one.bookie_id for one in client.list_bookies() if one.read_only})
        before = _copies(client, first)
        client.delete_ledger(ledgers.pop())
        report = running.result(DEADLINE_S)
    assert 0 < report.failed <= 2 * SLOW.recovery.parallel_ledgers  # neither is tried again
    assert _copies(client, first) <= before + SLOW.recovery.parallel_ledgers  # those that were under way
    assert _copies(client, third) > 0
    told = {one.bookie_id: one.held_bytes_after for one in report.bookies}
    now = {one.bookie_id: one.held_bytes for one in balance(client, no_progress, BalanceOptions(is_dry=True)).bookies}
    assert [told[one.bookie_id] for one in (first, third)] == [now[one.bookie_id] for one in (first, third)]
    client.administer_bookie(first.bookie_id, AdminOperation.READ_ONLY_OFF)
    start(second)
    _eventually(lambda: not any(one.read_only for one in client.list_bookies()))
    assert balance(client, no_progress).failed == 0
    _assert_sound(client, cluster, ledgers)


def test_what_is_open_or_marked_or_locked_or_names_a_bookie_that_went_since_the_plan_was_made_stays_as_it_is(
    cluster: LocalCluster, client: BookKeeper
) -> None:
    """The rest of the plan's ledgers moves."""
    writer = client.create_ledger(3, 3, 2)
    writer.append_batch(ENTRIES)
    marked, locked, moved, last = [_written(client) for _ in range(4)]
    start(cluster.bookies[3])
    marks = UnderReplication(client.metadata_store, client.znodes)
    marks.mark(marked, [])
    assert marks.try_lock(locked, "somebody else")
    full, *half, empty = [(one.bookie_id, one.config.rack) for one in cluster.bookies[:4]]
    held = [(full, 1 << 40), *((one, 1 << 39) for one in half), (empty, 0)]
    plan = BalancePlan([BookieCapacity(*one, nbytes, 1 << 40) for one, nbytes in held], max_bytes=1 << 40)
    rereplicator = Rereplicator(client.context, SLOW.recovery)
    before = client.ledger_metadata_many([writer.ledger_id, marked, locked, last])
    for ledger_id in (writer.ledger_id, marked, locked):
        result_of(client, rereplicator.balance(ledger_id, plan))
    assert client.ledger_metadata_many([writer.ledger_id, marked, locked]) == before[:3]
    assert result_of(client, rereplicator.balance(moved, plan)).fragments == 1
    assert full[0] not in client.ledger_metadata(moved).bookies
    cluster.bookies[1].kill()
    unregister(client.metadata_store, client.znodes, cluster.bookies[1].bookie_id)
    _eventually(lambda: len(result_of(client, client.context.registered())) == 3)
    result_of(client, rereplicator.balance(last, plan))
    assert client.ledger_metadata(last) == before[3]


def test_a_balance_beside_replication_workers_a_decommission_and_readers_leaves_every_ledger_whole(
    cluster: LocalCluster, client: BookKeeper, ledgers: list[int]
) -> None:
    leaving, new = cluster.bookies[1], cluster.bookies[3:]
    start(*new)
    cluster.start_autorecovery(AutoRecoveryConfig(lost_bookie_grace_s=0.5, retry_s=0.5))
    ended = threading.Event()

    def read() -> int:
        rounds = 0
        while not ended.is_set():
            for ledger_id in ledgers:
                with client.open_ledger(ledger_id) as reader:
                    assert payloads(reader) == ENTRIES
            rounds += 1
        return rounds

    hasty = DecommissionOptions(AutoRecoveryConfig(open_fragment_grace_s=0.05), stop_timeout_s=DEADLINE_S)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read)
        try:
            with BookKeeper(cluster.metadata_uri, PATIENT) as other, _under_way(other, new) as running:
                decommission(client, leaving.bookie_id, no_progress, hasty, lambda message: leaving.stop())
                running.result(DEADLINE_S)
        finally:
            ended.set()
        assert reading.result(DEADLINE_S) > 0
    assert _copies(client, leaving) == 0
    assert balance(client, no_progress).failed == 0
    _assert_sound(client, cluster, ledgers)
