"""Real bookie processes: what a kill, a clean stop, a copy and a lost disk leave to the next start (situations 69 to 71).

Ref: docs/rules.md, protocol rule 48, storage rules 9 and 12.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import BootPhase, BootRecord, read_boot
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import BookKeeperError, ProcessFailedError
from bk_spark.local.cluster import LocalBookie, LocalCluster, bookie_command
from bk_spark.metadata.registration import lookup
from bk_spark.metadata.zookeeper import connect
from tests.unit.bookie.identity.bookie_home import ZNODES

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disks")


@pytest.fixture(scope="module")
def own(disks: Path) -> Iterator[LocalCluster]:
    """One bookie with disks of their own for its journals and entry logs; each test leaves it running."""
    (disks / "j").mkdir()
    (disks / "a").mkdir()
    with LocalCluster(bookies=1, bookie_config=BookieConfig(journal_dirs=f"{disks}/j", ledger_dirs=f"{disks}/a")) as cluster:
        yield cluster


@pytest.fixture
def bookie(own: LocalCluster) -> LocalBookie:
    return own.bookies[0]


def records(bookie: LocalBookie, disks: Path) -> list[BootRecord]:
    found = [read_boot(REAL_DISK, root) for root in (bookie.data_dir, disks / "j", disks / "a")]
    return [record for record in found if record is not None]


def said_since(bookie: LocalBookie, offset: int) -> str:
    return bookie.log.read_bytes()[offset:].decode()


@contextmanager
def settings(bookie: LocalBookie, **changes: Any) -> Iterator[None]:
    before, bookie.config = bookie.config, replace(bookie.config, **changes)
    yield
    bookie.config = before


def start_and_listen(bookie: LocalBookie) -> str:
    offset = bookie.log.stat().st_size
    bookie.start()
    return said_since(bookie, offset)


def refused(own: LocalCluster, bookie: LocalBookie, data_dir: Path, config: BookieConfig) -> str:
    """What a second process says that is started with these directories."""
    command = bookie_command(data_dir, own.metadata_uri, 0, config)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert bookie.pid is not None
    return ended.stderr.splitlines()[-1]


def test_a_killed_bookie_left_the_mark_on_every_disk_and_comes_back_without_limbo(bookie: LocalBookie, disks: Path) -> None:
    """Storage rule 12, situation 71."""
    bookie.kill()
    left = records(bookie, disks)
    assert [(record.phase, record.skipped_journal) for record in left] == [(BootPhase.RUNNING, False)] * 3
    assert "limbo" not in start_and_listen(bookie)
    assert [record.confirmed.number for record in records(bookie, disks)] == [left[0].confirmed.number + 1] * 3


def test_a_stopped_bookie_left_no_mark_and_one_killed_while_it_skipped_the_journal_starts_in_limbo_whatever_its_mode_is_now(
    bookie: LocalBookie, disks: Path
) -> None:
    """Storage rule 9, situation 71."""
    bookie.stop()
    assert [(record.phase, record.skipped_journal) for record in records(bookie, disks)] == [(BootPhase.CLEAN, False)] * 3
    with settings(bookie, journal_write_data=False):
        assert "in limbo" not in start_and_listen(bookie)
        assert [record.skipped_journal for record in records(bookie, disks)] == [True] * 3
        bookie.kill()
    assert "starts in limbo: a run that skipped the journal" in start_and_listen(bookie)
    bookie.kill()
    assert "may have lost data" not in start_and_listen(bookie)  # the limbo that is stored goes on


def test_a_second_process_on_the_same_directories_is_refused(own: LocalCluster, bookie: LocalBookie, disks: Path) -> None:
    before = records(bookie, disks)
    assert "another process uses it: stop that one first" in refused(own, bookie, bookie.data_dir, bookie.config)
    assert records(bookie, disks) == before


def test_a_bookie_that_listens_elsewhere_is_still_the_same_and_a_copy_of_its_directories_is_refused(
    own: LocalCluster, bookie: LocalBookie, disks: Path, tmp_path: Path
) -> None:
    """A changed address under the same id is no mismatch (situation 69)."""
    bookie.stop()
    for original, copy in ((bookie.data_dir, "data"), (disks / "j", "j"), (disks / "a", "a")):
        shutil.copytree(original, tmp_path / copy)
    process = subprocess.Popen(bookie_command(bookie.data_dir, own.metadata_uri, 0, bookie.config), stderr=subprocess.DEVNULL)
    try:
        with connect(own.metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
            until(lambda: lookup(store, ZNODES, bookie.bookie_id) is not None)
            found = lookup(store, ZNODES, bookie.bookie_id)
        assert found is not None
        assert found.port != bookie.port
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    bookie.start()
    settings_of_copy = replace(bookie.config, journal_dirs=f"{tmp_path}/j", ledger_dirs=f"{tmp_path}/a")
    said = refused(own, bookie, tmp_path / "data", settings_of_copy)
    assert "is a copy, or was restored from an older state" in said


FIXED = pytest.mark.nightly(
    held_by="tests/unit/bookie/identity/test_boot_repair.py::test_after_a_fix_the_bookie_starts_in_limbo, "
    "tests/cluster/bookie/identity/test_process_identity.py"
    "::test_a_lost_disk_is_refused_fixed_by_the_operator_and_then_in_limbo"  # of the other disk
)
REPAIRED = pytest.mark.nightly(
    held_by="tests/unit/bookie/identity/test_boot_repair.py"
    "::test_a_repair_that_is_cut_anywhere_is_done_again_and_never_forgets_the_loss, "
    "tests/cluster/bookie/identity/test_process_identity.py"
    "::test_a_lost_disk_is_repaired_by_itself_where_that_is_configured_and_nothing_is_denied"
)


@pytest.mark.parametrize("name", ["a", pytest.param("j", marks=FIXED)])
def test_a_lost_disk_is_refused_fixed_by_the_operator_and_then_in_limbo(
    own: LocalCluster, bookie: LocalBookie, disks: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Situation 70."""
    bookie.kill()
    lose(disks / name)
    with pytest.raises(ProcessFailedError, match=f"run 'bk-spark cookie fix {bookie.bookie_id} --data-dir"):
        bookie.start()
    directories = ["--journal-dirs", f"{disks}/j", "--ledger-dirs", f"{disks}/a", "--data-dir", str(bookie.data_dir)]
    assert main(["cookie", "fix", bookie.bookie_id, *directories, "--metadata", own.metadata_uri]) == 0
    assert "starts in limbo" in capsys.readouterr().out
    assert "starts in limbo: a run that" in start_and_listen(bookie)


@pytest.mark.parametrize("name", [pytest.param("a", marks=REPAIRED), "j"])
def test_a_lost_disk_is_repaired_by_itself_where_that_is_configured_and_nothing_is_denied(
    own: LocalCluster, bookie: LocalBookie, disks: Path, name: str
) -> None:
    """Situation 70. The only replica is lost: its entries are unknown, "no such entry" would be a lie."""
    with BookKeeper(own.metadata_uri) as client:
        writer = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        writer.append_batch([b"one", b"two"])
        bookie.kill()
        lose(disks / name)
        with settings(bookie, automatic_cookie_repair=True):
            assert f"starts in limbo: the content of {disks}/{name} is taken for lost" in start_and_listen(bookie)
    patience = ClientConfig(recovery_timeout_s=1.0)
    with BookKeeper(own.metadata_uri, patience) as client, pytest.raises(BookKeeperError) as unknown:
        client.open_ledger(writer.ledger_id)
    assert unknown.value.retryable
    bookie.stop()
    assert "may have lost data" not in start_and_listen(bookie)


def lose(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
