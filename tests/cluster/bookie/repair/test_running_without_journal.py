"""Without the journal, as BP-46 wants it: its two scenarios with real bookies, and what a bookie does that lost its last adds.

Entries are acked before they are synced, and the disk forgets at SIGKILL what was not. Each scenario is played with the
protection, where it has to be safe, and with parts of it taken out, where it has to lose data: otherwise it would show nothing.

Ref: BP-46, "Impact of Undetected Data Loss on Consistency"; docs/rules.md, storage rules 11 and 12, protocol rules 50 to 52.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import BookieUnavailableError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import ROOT, LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import list_bookies, unregister
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from bk_spark.wire.messages import AdminOperation, Status
from tests.cluster.bookie.asked_bookie import AskedBookie
from tests.cluster.bookie.forgetful_bookie import WITHOUT_LIMBO, forgetful_bookie_command, forgets_fences
from tests.cluster.bookie.raw_bookie import DEADLINE_S, LARGE, SMALL, add, await_end_of_limbo, payload, read
from tests.cluster.live_ledgers import BRISK, bookies_of

IMPATIENT = dataclasses.replace(BRISK, recovery_timeout_s=2.0)


class Flags:
    """What the bookies that are started from now on leave out."""

    def __init__(self) -> None:
        self.flags: tuple[str, ...] = ()

    def command(self, data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
        return forgetful_bookie_command(data_dir, metadata_uri, port, config, *self.flags)


@pytest.fixture(scope="module")
def flags() -> Iterator[Flags]:
    made = Flags()
    with mock.patch.object(local_cluster, "bookie_command", made.command):
        yield made


@pytest.fixture(scope="module")
def shared(flags: Flags) -> Iterator[LocalCluster]:
    """Three bookies, which each test leaves running and listed. What they lost before are older ledgers than a test's own."""
    # A session that outlasts every suspension here: a bookie that is resumed is found again at once.
    config = BookieConfig(journal_write_data=False, session_timeout_s=60.0, disk_check_s=0.1)
    with LocalCluster(bookies=3, bookie_config=config) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster, flags: Flags) -> LocalCluster:
    flags.flags = ()
    return shared


def _ledger(cluster: LocalCluster) -> LedgerMetadata:
    """A ledger on all three bookies, whose writer is the test."""
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        return client.ledger_metadata(client.create_ledger(3, 3, 2).ledger_id)


def _restart(bookie: LocalBookie) -> None:
    bookie.kill()
    bookie.start()


def _last_entry_after_recovery(cluster: LocalCluster, ledger_id: int, patience: ClientConfig = BRISK) -> int:
    with BookKeeper(cluster.metadata_uri, patience) as client:
        return client.open_ledger(ledger_id).last_add_confirmed


# --- scenario 1: a lost fence lets a writer write into a closed ledger


def _answers_after_the_close(cluster: LocalCluster, *, forgets: bool = False) -> list[Status]:
    """Scenario 1, to its end: what the three bookies say to an entry of a ledger that was closed before it."""
    metadata = _ledger(cluster)
    bookies = bookies_of(cluster, metadata)
    with forgets_fences(bookies[1].data_dir) if forgets else nullcontext():
        assert [add(bookie, metadata.ledger_id, 0) for bookie in bookies] == [Status.OK] * 3
        with _away(cluster, bookies[2]):  # the second client's messages to this one are lost
            assert _last_entry_after_recovery(cluster, metadata.ledger_id) == 0
        bookies[1].kill()
    bookies[1].start()
    return [add(bookie, metadata.ledger_id, 1) for bookie in bookies]


@contextmanager
def _away(cluster: LocalCluster, bookie: LocalBookie) -> Iterator[None]:
    """Clients do not find the bookie. It lists itself again when its state changes."""
    with connect(cluster.metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store, AskedBookie(bookie) as asked:
        unregister(store, Znodes(ROOT), bookie.bookie_id)
        yield
        for operation, is_read_only in ((AdminOperation.READ_ONLY_ON, True), (AdminOperation.READ_ONLY_OFF, False)):
            asked.administer(operation)
            deadline = time.monotonic() + DEADLINE_S
            while (bookie.bookie_id, is_read_only) not in [
                (one.address.bookie_id, one.read_only) for one in list_bookies(store, Znodes(ROOT))
            ]:
                assert time.monotonic() < deadline
                time.sleep(0.02)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("forgets", "left_out"), [(False, ()), (True, ()), (False, (WITHOUT_LIMBO,))])
def test_a_bookie_that_lost_what_was_not_synced_does_not_let_a_frozen_writer_go_on(
    cluster: LocalCluster, flags: Flags, forgets: bool, left_out: tuple[str, ...]
) -> None:
    """Fences are synced, and limbo stands behind that: either alone is enough."""
    flags.flags = left_out
    first, second, third = _answers_after_the_close(cluster, forgets=forgets)
    assert (first, third) == (Status.FENCED, Status.OK)
    assert second in (Status.FENCED, Status.UNKNOWN)


@pytest.mark.timeout(120)
def test_without_both_an_entry_is_confirmed_behind_the_end_of_a_closed_ledger(cluster: LocalCluster, flags: Flags) -> None:
    flags.flags = (WITHOUT_LIMBO,)
    assert _answers_after_the_close(cluster, forgets=True) == [Status.FENCED, Status.OK, Status.OK]


# --- scenario 2: a recovery cuts off what was confirmed


def _confirmed_then_lost(cluster: LocalCluster, size: int) -> tuple[int, LocalBookie]:
    """Scenario 2, to the second client's recovery: entry 0 is confirmed by the first and the third bookie, the first loses it.

    Gives back the ledger and the third bookie, whose answers are late.
    """
    metadata = _ledger(cluster)
    first, _, third = bookies_of(cluster, metadata)
    assert [add(bookie, metadata.ledger_id, 0, size) for bookie in (first, third)] == [Status.OK] * 2
    third.suspend()
    _restart(first)
    return metadata.ledger_id, third


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [SMALL, LARGE])  # in memory alone when it is acked; in the entry log, not synced
def test_a_recovery_does_not_cut_off_what_a_bookie_in_limbo_has_lost(cluster: LocalCluster, size: int) -> None:
    ledger_id, third = _confirmed_then_lost(cluster, size)
    with pytest.raises(BookieUnavailableError):
        _last_entry_after_recovery(cluster, ledger_id, IMPATIENT)
    third.resume()
    assert _last_entry_after_recovery(cluster, ledger_id) == 0


@pytest.mark.timeout(120)
def test_without_limbo_a_recovery_cuts_off_a_confirmed_entry(cluster: LocalCluster, flags: Flags) -> None:
    flags.flags = (WITHOUT_LIMBO,)
    ledger_id, third = _confirmed_then_lost(cluster, LARGE)
    assert _last_entry_after_recovery(cluster, ledger_id) == -1
    third.resume()


# --- self-repair


@pytest.mark.timeout(180)
def test_a_bookie_killed_under_load_gets_back_all_that_was_confirmed(cluster: LocalCluster) -> None:
    """Killed again while it repairs, too. One ledger was closed, one is open and its writer gone: it is recovered."""
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        writers = [client.create_ledger(3, 3, 2) for _ in range(2)]
        victim = cluster.bookies[0]
        expected = [payload(one, LARGE if one % 10 == 0 else SMALL) for one in range(200)]
        for one, entry in enumerate(expected):
            for writer in writers:
                writer.append(entry)
            if one == 100:
                victim.kill()
        writers[0].close()
        ledger_ids = [writer.ledger_id for writer in writers]
    victim.start()
    _restart(victim)
    for ledger_id in ledger_ids:
        await_end_of_limbo(victim, ledger_id, len(expected) - 1)
        found, end = read(victim, ledger_id, 0, len(expected) - 1)
        assert end is Status.OK
        assert [found[one] for one in range(len(expected))] == expected
        assert add(victim, ledger_id, len(expected)) is Status.FENCED


@pytest.mark.timeout(120)
def test_a_clean_stop_without_the_journal_is_no_loss(cluster: LocalCluster) -> None:
    metadata = _ledger(cluster)
    bookie = bookies_of(cluster, metadata)[0]
    assert add(bookie, metadata.ledger_id, 0) is Status.OK
    bookie.stop()
    bookie.start()
    found, end = read(bookie, metadata.ledger_id, 0, 1)
    assert (found, end) == ({0: payload(0, SMALL)}, Status.NO_SUCH_ENTRY)
    assert add(bookie, metadata.ledger_id, 1) is Status.OK
