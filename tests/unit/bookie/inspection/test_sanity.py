"""What is found wrong with a stopped bookie before it is started, by ``bk-spark bookie sanity``.

Ref: docs/rules.md, storage rules 2, 3, 7 and 9, protocol rule 48; situation 69.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import BOOT_FILE, read_boot, write_boot
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.cli import main
from bk_spark.wire.messages import AddRequest
from tests.unit.bookie.harness import Harness
from tests.unit.bookie.identity.bookie_home import QUICK_DISK, Home

LARGE = 100_000


class Stopped:
    """A bookie with disks of its own for journals and entry logs, that stored something and stopped."""

    def __init__(self, root: Path, harness: Harness) -> None:
        self.home = Home(root)
        self._harness = harness
        self.run(lambda bookie: None)
        self.run(lambda bookie: None)

    def run(self, meanwhile: Callable[[Bookie], None], *, ends: bool = True) -> None:
        """One life, in which a small and a large batch come in."""
        boot = self.home.boot()
        bookie = Bookie.open(self.home.directories, boot.bookie_id, self.home.config, QUICK_DISK)
        boot.opened(skips_journal=not self.home.config.journal_write_data)
        for number, size in enumerate((10, LARGE)):
            batch = self._harness.batch(number + 2 * boot.number, 0, 5, size=size)
            bookie.stage(AddRequest(number, boot.bookie_id, self._harness.key, batch), None)
        bookie.sync()
        meanwhile(bookie)
        bookie.close()
        if ends:
            boot.end()

    def run_and_kill(self) -> None:
        """One life that ends as SIGKILL ends it, with something in the newest journal."""
        boot = self.home.boot()
        bookie = Bookie.open(self.home.directories, boot.bookie_id, self.home.config, QUICK_DISK)
        boot.opened(skips_journal=False)
        bookie.stage(AddRequest(1, boot.bookie_id, self._harness.key, self._harness.batch(99, 0, 5)), None)
        bookie.sync()
        bookie.storage.log_files.close()
        with bookie.storage._index.reading() as index:
            index.close()
        assert bookie._home.lock is not None
        bookie._home.lock.release()

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.home.root.rglob("*") if path.is_file()}

    def check(self, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, str]]:
        """The exit code, and what was found, by check."""
        config = self.home.config
        named = ["--journal-dirs", config.journal_dirs, "--ledger-dirs", config.ledger_dirs]
        code = main(["bookie", "sanity", "--data-dir", str(self.home.data), "--json", *named, *more])
        out, err = capsys.readouterr()
        found = [json.loads(line) for line in out.splitlines()]
        wrong = {f"{one['check']} {one['place']}": one["state"] for one in found if one["state"] != "right"}
        return code, wrong | {"stderr": err} if err else wrong


@pytest.fixture
def stopped(tmp_path: Path, harness: Harness) -> Stopped:
    return Stopped(tmp_path / "home", harness)


def test_a_bookie_that_stopped_cleanly_is_found_right_and_left_as_it_is(
    stopped: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stopped.files()
    assert stopped.check(capsys) == (0, {f"next start {stopped.home.bookie_id}": "serves everything at once"})
    assert stopped.files() == before


def test_a_bookie_that_never_ran_is_found_right(tmp_path: Path, harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    new = Stopped.__new__(Stopped)
    new.home = Home(tmp_path / "home")
    assert new.check(capsys)[0] == 0


def test_what_a_crash_left_is_tidied_up_by_the_next_start_only(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished = stopped.home.root / "a" / "entry_log" / "0000000099.log.tmp"
    unfinished.write_bytes(b"x")
    assert stopped.check(capsys)[0] == 0
    assert unfinished.exists()


def test_a_bookie_that_runs_is_refused(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    lock = REAL_DISK.lock(stopped.home.data)
    code, wrong = stopped.check(capsys)
    lock.release()
    assert code == 1
    assert "another process uses it: stop that one first" in wrong["stderr"]


def test_a_directory_that_the_settings_leave_out_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.home.configure(ledger_dirs=f"{stopped.home.root}/a")
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "name all directories in the order in which they were formatted" in wrong["stderr"]


def test_an_empty_disk_in_the_place_of_another_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.home.lose(stopped.home.root / "b")
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "mount the right disk" in wrong[f"cookie and boot file {stopped.home.root}/b"]


def test_a_disk_that_missed_a_boot_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    restore = stopped.home.snapshot(stopped.home.root / "b")
    stopped.run(lambda bookie: None)
    restore()
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "is a copy, or was restored from an older state" in wrong[f"cookie and boot file {stopped.home.root}/b"]


def test_a_log_that_is_missing_or_cut_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, last = sorted((stopped.home.root / "a" / "entry_log").iterdir())
    first.unlink()
    last.write_bytes(last.read_bytes()[:-1])
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert wrong[f"entry log {first}"] == "it is missing"
    assert "the index knows of" in wrong[f"entry log {last}"]


def test_damage_above_the_mark_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    def keep(bookie: Bookie) -> None:
        kept.update({path: path.read_bytes() for path in (stopped.home.root / "j").rglob("*.journal")})
        kept.update({path: path.read_bytes() for path in stopped.home.directories.index.iterdir()})

    kept: dict[Path, bytes] = {}
    stopped.run(keep, ends=False)
    journals = [path for path in kept if path.suffix == ".journal"]
    for path, data in kept.items():
        path.write_bytes(data)
    last = max(journals)
    data = bytearray(last.read_bytes())
    data[4096 + 200] ^= 1
    last.write_bytes(data)
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert str(last) in wrong[f"logs {last}"]


def test_a_flipped_bit_in_the_index_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    path = stopped.home.directories.index / "index.db"
    path = path if path.exists() else max(stopped.home.directories.index.iterdir(), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    for offset in range(4096, len(data), 512):
        data[offset] ^= 0x10
    path.write_bytes(data)
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert wrong[f"index {stopped.home.directories.index}"]


def test_an_index_that_is_gone_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    for path in stopped.home.directories.index.iterdir():
        path.unlink()
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert wrong[f"index {stopped.home.directories.index}"]


def test_that_the_next_start_is_in_limbo_is_said_with_its_reason(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.home.configure(journal_write_data=False)
    stopped.run(lambda bookie: None, ends=False)
    code, wrong = stopped.check(capsys)
    assert code == 0
    assert "in limbo: a run that skipped the journal" in wrong[f"next start {stopped.home.bookie_id}"]


def test_a_limbo_that_goes_on_is_said(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.run(lambda bookie: bookie.storage.set_limbo(Limbo(77)))
    code, wrong = stopped.check(capsys)
    assert code == 0
    assert "up to ledger 77" in wrong[f"limbo {stopped.home.directories.index}"]


def test_a_damaged_boot_file_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped.home.root / "j" / BOOT_FILE).write_bytes(b"nothing")
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "its checksum does not match" in wrong[f"cookie and boot file {stopped.home.root}/j"]


def test_a_pending_boot_number_is_no_fault(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    """A crash between the first and the last of the boot files."""
    record = read_boot(REAL_DISK, stopped.home.root / "j")
    assert record is not None
    stopped.home.boot()
    confirmed = read_boot(REAL_DISK, stopped.home.root / "a")
    assert confirmed is not None
    write_boot(REAL_DISK, stopped.home.root / "j", record.begun(record.confirmed, confirmed.confirmed))
    assert stopped.check(capsys)[0] == 0


def test_without_its_directories_no_index_is_rebuilt(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    """The logs that an index does not know would be taken for leftovers, and deleted, by the next start."""
    before = stopped.files()
    config = stopped.home.config
    some = ["--journal-dirs", config.journal_dirs, "--ledger-dirs", config.ledger_dirs.split(",")[0]]
    for named in ([], some):
        assert main(["bookie", "rebuild-index", "--data-dir", str(stopped.home.data), *named]) == 1
        assert "directories in the order in which they were formatted" in capsys.readouterr().err
    assert stopped.files() == before


def test_the_newest_journal_of_a_killed_bookie_is_missed(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    """Storage rule 15: no other file names it."""
    stopped.run_and_kill()
    newest = max((stopped.home.root / "j" / "journal").iterdir())
    assert stopped.check(capsys)[0] == 0
    newest.unlink()
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "it is missing, though it was durable up to byte" in wrong[f"logs {newest}"]


@pytest.mark.parametrize(("left", "problem"), [(None, "is missing"), (b"x", "the checksum of its sector 0 is wrong")])
def test_a_lost_witness_is_named(
    stopped: Stopped, capsys: pytest.CaptureFixture[str], left: bytes | None, problem: str
) -> None:
    path = stopped.home.data / WITNESS_FILE
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert problem in wrong[f"witness {path}"]


def test_an_index_that_is_older_than_the_witness_tells_is_named(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    older = {path: path.read_bytes() for path in stopped.home.directories.index.iterdir()}
    stopped.run(lambda bookie: None)
    for path, data in older.items():
        path.write_bytes(data)
    code, wrong = stopped.check(capsys)
    assert code == 1
    assert "it is old" in wrong[f"witness {stopped.home.data / WITNESS_FILE}"]
