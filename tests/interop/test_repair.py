"""Lost copies are made again by either side's AutoRecovery, from bookies of either kind onto bookies of either kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.bookkeeper_cluster import AUTORECOVERY
from benchmarks.speed.measure import SkippedError
from bk_spark.cli import main
from bk_spark.errors import ProcessFailedError
from tests.interop.apache import IS_ALL, apache_beside
from tests.interop.repair import OUR_SETTINGS, THEIR_SETTINGS, MixedCluster, eventually, mixed_cluster
from tests.soak.chaos.steady_load import SteadyLoad, is_unreadable

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: minutes, with five JVMs"),
]

PATIENT_S = 3600
"""A pause before a lost bookie is replaced that no test waits for."""

Repairer = Callable[..., AbstractContextManager[None]]


@contextmanager
def mixed_or_skipped(directory: Path, apache: int, settings: Mapping[str, str]) -> Iterator[MixedCluster]:
    try:
        with mixed_cluster(directory, apache, settings) as cluster:
            yield cluster
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's bookies are not to be had: {reason}")


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[MixedCluster]:
    """One bookie of Apache's, not started yet."""
    with mixed_or_skipped(tmp_path, 1, {}) as cluster:
        yield cluster


@contextmanager
def apache_autorecovery(mixed: MixedCluster, directory: Path, delay_s: int = 0) -> Iterator[None]:
    """Apache's AutoRecovery in a process of its own, once it is the auditor. It waits so long for a bookie that is gone."""
    settings = {**THEIR_SETTINGS, "lostBookieRecoveryDelay": str(delay_s)}
    with apache_beside(mixed.ours, directory / "autorecovery", 1, settings, AUTORECOVERY) as process:
        (java,) = process.bookies
        java.launch()
        eventually(lambda: mixed.auditor() == java.bookie_id, "Apache's process is the auditor")
        yield


@contextmanager
def our_autorecovery(mixed: MixedCluster, directory: Path, delay_s: int = 1) -> Iterator[None]:
    process = mixed.ours.start_autorecovery(replace(OUR_SETTINGS, lost_bookie_grace_s=delay_s))
    eventually(lambda: mixed.auditor() == process.name, "our process is the auditor")
    yield


@pytest.mark.parametrize("repairer", [apache_autorecovery, our_autorecovery])
def test_either_autorecovery_replaces_bookies_of_both_kinds_by_bookies_of_both_kinds(
    mixed: MixedCluster, tmp_path: Path, repairer: Repairer
) -> None:
    """There are three live bookies for ensembles of three, and one spare: it is known whose copies go where."""
    first, second = mixed.ours.bookies[:2]
    with repairer(mixed, tmp_path):
        mixed.write()
        apache = mixed.start_apache()
        first.kill()
        mixed.await_whole(first.bookie_id)
        assert len(mixed.naming(apache)) == len(mixed.written), "copies of our bookies went to Apache's"
        mixed.check()

        mixed.write()
        mixed.add_ours()
        second.kill()
        mixed.await_whole(second.bookie_id)
        mixed.check()

        mixed.write()
        mixed.add_ours()
        mixed.apache.bookies[0].kill()
        mixed.await_whole(apache)
        mixed.check()


def test_both_autorecoveries_together_leave_nothing_to_do_and_lose_nothing(tmp_path: Path) -> None:
    """Each loss takes the auditor along, and the next candidate is of the other side."""
    with mixed_or_skipped(tmp_path, 2, {"autoRecoveryDaemonEnabled": "true"}) as mixed:
        first = mixed.start_apache(0)
        eventually(lambda: mixed.candidates() == [first], "Apache's first bookie is the auditor")
        ours = mixed.ours.start_autorecovery(OUR_SETTINGS)
        second = mixed.start_apache(1)
        eventually(lambda: len(mixed.candidates()) == 3, "three candidates stand for election")
        last = mixed.ours.start_autorecovery(OUR_SETTINGS)
        assert mixed.candidates() == [first, ours.name, second, last.name]
        mixed.recoveries += [ours, last]
        with SteadyLoad(mixed.ours.metadata_uri, writers=1, readers=1) as load:
            load.await_progress()
            mixed.write()
            mixed.apache.bookies[0].kill()
            mixed.await_whole(first, mixed.check_office)
            mixed.check()
            assert mixed.in_office() == [ours.name]

            mixed.write()
            ours.kill()
            mixed.ours.bookies[0].kill()
            mixed.await_whole(mixed.ours.bookies[0].bookie_id, mixed.check_office)
            mixed.check()
            assert mixed.in_office() == [second]

            mixed.write()
            mixed.add_ours()
            mixed.apache.bookies[1].kill()
            mixed.await_whole(second, mixed.check_office)
            load.await_progress()
        mixed.check()
        assert mixed.in_office() == [last.name]
        assert load.noted.errors == []
        unreadable = [is_unreadable(mixed.client, *one) for one in load.noted.confirmed.items()]
        assert not any(unreadable), unreadable


@pytest.mark.parametrize("repairer", [apache_autorecovery, our_autorecovery])
def test_apaches_shell_decommissions_a_bookie_of_ours_whoever_is_the_auditor(
    mixed: MixedCluster, tmp_path: Path, repairer: Repairer
) -> None:
    """Only the shell's request has the bookie replaced: both auditors would wait for an hour."""
    leaving = mixed.ours.bookies[0]
    mixed.write()
    mixed.start_apache()
    with repairer(mixed, tmp_path, PATIENT_S):
        leaving.stop()
        eventually(lambda: leaving.bookie_id not in mixed.registered(), "the bookie is not registered")
        mixed.apache.shell("decommissionbookie", "-bookieid", leaving.bookie_id)
        mixed.await_whole(leaving.bookie_id)
    mixed.check()
    with pytest.raises(ProcessFailedError, match="cookie"):
        leaving.start()


@pytest.mark.parametrize("repairer", [apache_autorecovery, our_autorecovery])
def test_our_command_decommissions_a_bookie_of_apaches_beside_either_autorecovery(
    mixed: MixedCluster, tmp_path: Path, repairer: Repairer
) -> None:
    """Recoveries mark ledgers whose last fragment names the bookie. Workers find these whole, and remove the marks."""
    mixed.start_apache()
    mixed.ours.bookies[0].kill()
    eventually(lambda: len(mixed.registered()) == 3, "three bookies are registered, Apache's among them")
    mixed.write()
    mixed.add_ours()
    (leaving,) = mixed.apache.bookies
    assert len(mixed.naming(leaving.bookie_id)) == len(mixed.written)
    leaving.stop()
    eventually(lambda: leaving.bookie_id not in mixed.registered(), "the bookie is not registered")
    words = ["bookie", "decommission", leaving.bookie_id, "--open-grace-s", "1", "--metadata", mixed.ours.metadata_uri]
    with repairer(mixed, tmp_path, PATIENT_S):
        assert main(words) == 0
        mixed.await_whole(leaving.bookie_id)
    mixed.check()
    with pytest.raises(ProcessFailedError, match="InvalidCookieException"):
        leaving.start()
