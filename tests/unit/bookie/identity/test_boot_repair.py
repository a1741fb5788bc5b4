"""The loss of a disk is repaired by itself where that is configured, and else by an operator: limbo first, then the stamp.

Ref: docs/rules.md, protocol rules 48 and 51, storage rule 9, situation 70.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.boot import MetadataPlace, fix_cookies
from bk_spark.bookie.identity.boot_file import BOOT_FILE
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.errors import ConfigError
from bk_spark.metadata.registration import BookieAddress, register
from tests.memory_store import MemoryStore
from tests.unit.bookie.identity.bookie_home import ZNODES, Home, begin, cut_everywhere, numbered


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# --- repairs


def test_a_lost_disk_is_refused_unless_automatic_repair_is_on(home: Home, tmp_path: Path) -> None:
    home.run().end()
    home.lose(tmp_path / "a")
    with pytest.raises(ConfigError, match="bk-spark cookie fix"):
        home.boot()
    assert not (tmp_path / "a" / COOKIE_FILE).exists()
    home.configure(automatic_cookie_repair=True)
    assert f"{tmp_path}/a" in home.run().possible_loss


def test_a_repaired_directory_is_a_new_one_and_is_listed_everywhere(home: Home, tmp_path: Path) -> None:
    home.run().end()
    before = home.cookies()
    home.lose(tmp_path / "a")
    home.configure(automatic_cookie_repair=True)
    home.run().end()
    after = home.cookies()
    assert after[tmp_path / "a"].directory_id != before[tmp_path / "a"].directory_id
    assert after[tmp_path / "b"] == before[tmp_path / "b"]
    assert after[home.data].places == home.stored().places
    assert home.run().possible_loss == ""


@pytest.mark.parametrize("name", ["data", "j", "a"])
def test_a_repair_that_is_cut_anywhere_is_done_again_and_never_forgets_the_loss(tmp_path: Path, name: str) -> None:
    """Situation 70: no directory is ever stamped before it is durable that data was lost."""

    def lose(home: Home) -> None:
        home.run().end()
        home.lose(home.root / name)
        home.configure(automatic_cookie_repair=True)

    left = cut_everywhere(numbered(tmp_path, lose), begin)
    assert len(left) >= 20
    for home in left:
        assert home.run(incarnation=b"B" * 16 if name == "data" else b"A" * 16).possible_loss
        assert home.examine().mismatches == ()


def test_what_is_not_plainly_a_lost_disk_is_not_repaired_by_itself(home: Home, tmp_path: Path) -> None:
    home.configure(automatic_cookie_repair=True)
    (tmp_path / "a" / "of-somebody-else").write_text("")
    (tmp_path / "a" / COOKIE_FILE).unlink()
    with pytest.raises(ConfigError, match="is not empty, it holds 'of-somebody-else'"):
        home.boot()


def test_an_added_directory_is_no_loss(home: Home, tmp_path: Path) -> None:
    home.run().end()
    (tmp_path / "c").mkdir()
    home.configure(ledger_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c", automatic_cookie_repair=True)
    assert home.run().possible_loss == ""
    assert home.cookies()[tmp_path / "c"].uses == ("entry_log-2",)
    assert "entry_log-2" in {place.use for place in home.stored().places}


# --- the operator's repair


def test_a_fix_of_what_fits_changes_nothing(home: Home) -> None:
    home.run().end()
    before = home.stored(), home.records()
    assert home.fix() == ()
    assert (home.stored(), home.records()) == before


@pytest.mark.parametrize("name", ["data", "j", "a", "b"])
def test_after_a_fix_the_bookie_starts_in_limbo(home: Home, tmp_path: Path, name: str) -> None:
    home.run().end()
    home.lose(tmp_path / name)
    (repaired,) = home.fix(bookie_id=home.bookie_id)
    assert repaired.startswith(f"{tmp_path}/{name}: it is empty")
    assert "bk-spark" not in repaired
    assert home.examine().mismatches == ()
    boot = home.run()
    assert boot.possible_loss
    boot.end()
    assert home.run().possible_loss == ""


def test_a_bookie_that_lost_its_only_disk_is_made_anew_under_its_id(tmp_path: Path) -> None:
    home = Home(tmp_path, disks=False)
    home.run().end()
    home.lose(home.data)
    home.fix(bookie_id=home.bookie_id)
    assert home.examine().bookie_id == home.bookie_id
    assert home.run().possible_loss


def test_a_bookie_that_was_removed_comes_back_as_one_that_lost_its_disks(home: Home) -> None:
    for _ in range(3):
        home.run().end()
    home.store.delete(ZNODES.cookie(home.bookie_id))
    home.fix()
    assert home.stored().boot.number == 4
    boot = home.run()
    assert boot.possible_loss
    assert home.cookies()[home.data].places == home.stored().places


@pytest.mark.parametrize("name", [COOKIE_FILE, BOOT_FILE])
def test_a_damaged_file_is_fixed(home: Home, tmp_path: Path, name: str) -> None:
    home.run().end()
    (tmp_path / "a" / name).write_bytes(b"rubbish")
    home.fix()
    assert home.run().possible_loss


def test_journals_are_moved_to_a_directory_of_their_own(tmp_path: Path) -> None:
    home = Home(tmp_path, disks=False)
    home.run().end()
    (tmp_path / "j").mkdir()
    home.configure(journal_dirs=f"{tmp_path}/j")
    assert len(home.fix()) == 2
    assert home.cookies()[home.data].uses == ("data", "entry_log-0")
    assert home.run().possible_loss


def test_a_fix_that_adds_a_directory_leaves_a_clean_bookie_clean(home: Home, tmp_path: Path) -> None:
    home.run().end()
    (tmp_path / "c").mkdir()
    home.configure(ledger_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c")
    assert len(home.fix()) == 1
    assert home.run().possible_loss == ""


def test_a_bookie_that_is_registered_is_not_fixed(home: Home, tmp_path: Path) -> None:
    home.run().end()
    register(home.store, ZNODES, BookieAddress(home.bookie_id, "somewhere", 7))
    home.lose(tmp_path / "a")
    with pytest.raises(ConfigError, match="is registered at somewhere:7: stop it"):
        home.fix()
    assert not (tmp_path / "a" / COOKIE_FILE).exists()


def test_a_fix_that_is_cut_anywhere_can_be_done_again(tmp_path: Path) -> None:
    def lose(home: Home) -> None:
        home.run().end()
        home.lose(home.root / "a")

    def fix(home: Home, disk: Disk, store: MemoryStore) -> None:
        fix_cookies(home.examine(store=store), MetadataPlace(store, ZNODES), disk)

    left = cut_everywhere(numbered(tmp_path, lose), fix)
    assert len(left) >= 20
    for home in left:
        home.fix()
        assert home.run().possible_loss
