"""Without the journal, as BP-46 wants it: its two scenarios with real bookies, and what a bookie does that lost its last adds.

Entries are acked before they are synced, and the disk forgets at SIGKILL what was not. Each scenario is played with the
protection, where it has to be safe, and with parts of it taken out, where it has to lose data: otherwise it would show nothing.

Ref: BP-46, "Impact of Undetected Data Loss on Consistency"; docs/rules.md, storage rules 11 and 12, protocol rules 50 to 52.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import BookieUnavailableError
from bk_spark.local import cluster as local_cluster
from bk_spark.local.cluster import ROOT, LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from bk_spark.wire.messages import Status
from tests.cluster.bookie.forgetful_bookie import FORGET_FENCES, WITHOUT_LIMBO, forgetful_bookie_command
from tests.cluster.bookie.raw_bookie import LARGE, SMALL, add, await_end_of_limbo, payload, read
from tests.cluster.live_ledgers import BRISK, bookies_of

IMPATIENT = dataclasses.replace(BRISK, recovery_timeout_s=3.0)


class Flags:
    """What the bookies that are started from now on leave out."""

    def __init__(self) -> None:
        self.flags: tuple[str, ...] = ()

    def command(self, data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
        return forgetful_bookie_command(data_dir, metadata_uri, port, config, *self.flags)


@pytest.fixture
def flags() -> Iterator[Flags]:
    made = Flags()
    with mock.patch.object(local_cluster, "bookie_command", made.command):
        yield made


def _cluster(flags: Flags, *left_out: str) -> LocalCluster:
    flags.flags = left_out
    # A session that outlasts every suspension here: a bookie that is resumed is found again at once.
    return LocalCluster(bookies=3, bookie_config=BookieConfig(journal_write_data=False, session_timeout_s=60.0))


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


def _answers_after_the_close(cluster: LocalCluster) -> list[Status]:
    """Scenario 1, to its end: what the three bookies say to an entry of a ledger that was closed before it."""
    metadata = _ledger(cluster)
    bookies = bookies_of(cluster, metadata)
    assert [add(bookie, metadata.ledger_id, 0) for bookie in bookies] == [Status.OK] * 3
    with connect(cluster.metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        unregister(store, Znodes(ROOT), bookies[2].bookie_id)  # the second client's messages to this one are lost
    assert _last_entry_after_recovery(cluster, metadata.ledger_id) == 0
    _restart(bookies[1])
    return [add(bookie, metadata.ledger_id, 1) for bookie in bookies]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("left_out", [(), (FORGET_FENCES,), (WITHOUT_LIMBO,)])
def test_a_bookie_that_lost_what_was_not_synced_does_not_let_a_frozen_writer_go_on(
    flags: Flags, left_out: tuple[str, ...]
) -> None:
    """Fences are synced, and limbo stands behind that: either alone is enough."""
    with _cluster(flags, *left_out) as cluster:
        first, second, third = _answers_after_the_close(cluster)
        assert (first, third) == (Status.FENCED, Status.OK)
        assert second in (Status.FENCED, Status.UNKNOWN)


@pytest.mark.timeout(120)
def test_without_both_an_entry_is_confirmed_behind_the_end_of_a_closed_ledger(flags: Flags) -> None:
    with _cluster(flags, FORGET_FENCES, WITHOUT_LIMBO) as cluster:
        assert _answers_after_the_close(cluster) == [Status.FENCED, Status.OK, Status.OK]


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
def test_a_recovery_does_not_cut_off_what_a_bookie_in_limbo_has_lost(flags: Flags, size: int) -> None:
    with _cluster(flags) as cluster:
        ledger_id, third = _confirmed_then_lost(cluster, size)
        with pytest.raises(BookieUnavailableError):
            _last_entry_after_recovery(cluster, ledger_id, IMPATIENT)
        third.resume()
        assert _last_entry_after_recovery(cluster, ledger_id) == 0


@pytest.mark.timeout(120)
def test_without_limbo_a_recovery_cuts_off_a_confirmed_entry(flags: Flags) -> None:
    with _cluster(flags, WITHOUT_LIMBO) as cluster:
        ledger_id, third = _confirmed_then_lost(cluster, LARGE)
        assert _last_entry_after_recovery(cluster, ledger_id) == -1
        third.resume()


# --- self-repair


@pytest.mark.timeout(180)
def test_a_bookie_killed_under_load_gets_back_all_that_was_confirmed(flags: Flags) -> None:
    """Killed again while it repairs, too. One ledger was closed, one is open and its writer gone: it is recovered."""
    with _cluster(flags) as cluster:
        with BookKeeper(cluster.metadata_uri, BRISK) as client:
            writers = [client.create_ledger(3, 3, 2) for _ in range(2)]
            victim = cluster.bookies[0]
            expected = [payload(one, LARGE if one % 10 == 0 else SMALL) for one in range(300)]
            for one, entry in enumerate(expected):
                for writer in writers:
                    writer.append(entry)
                if one == 150:
                    victim.kill()
            writers[0].close()
            ledger_ids = [writer.ledger_id for writer in writers]
        for _ in range(2):
            victim.start()
            victim.kill()
        victim.start()
        for ledger_id in ledger_ids:
            await_end_of_limbo(victim, ledger_id, len(expected) - 1)
            found, end = read(victim, ledger_id, 0, len(expected) - 1)
            assert end is Status.OK
            assert [found[one] for one in range(len(expected))] == expected
            assert add(victim, ledger_id, len(expected)) is Status.FENCED


@pytest.mark.timeout(120)
def test_a_clean_stop_without_the_journal_is_no_loss(flags: Flags) -> None:
    with _cluster(flags) as cluster:
        metadata = _ledger(cluster)
        bookie = bookies_of(cluster, metadata)[0]
        assert add(bookie, metadata.ledger_id, 0) is Status.OK
        bookie.stop()
        bookie.start()
        found, end = read(bookie, metadata.ledger_id, 0, 1)
        assert (found, end) == ({0: payload(0, SMALL)}, Status.NO_SUCH_ENTRY)
        assert add(bookie, metadata.ledger_id, 1) is Status.OK
