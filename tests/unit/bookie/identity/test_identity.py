"""Whether a bookie's directories are all there and its own: everything else must not start (situation 69).

Each refusal is one sentence with the way out. Those that an operator can repair by ``bk-spark cookie fix``, and those that a
bookie repairs by itself where it is configured to, are told apart (situation 70).
Ref: docs/rules.md, protocol rule 48, storage rule 9.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.identity.boot_file import BOOT_FILE
from bk_spark.bookie.identity.checked_text import encode_fields
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE, encode_cookie
from bk_spark.bookie.identity.identity import Mismatch
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.identity.bookie_home import ZNODES, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A bookie with a data directory, a directory for journals and two for entry logs, that ran and stopped cleanly."""
    made = Home(tmp_path)
    made.run().end()
    return made


def the_mismatch(home: Home) -> Mismatch:
    (found,) = home.examine().mismatches
    with pytest.raises(BookKeeperError) as refused:
        home.boot()
    assert str(refused.value) == str(found.error)
    return found


def test_directories_that_fit_have_no_mismatch(home: Home) -> None:
    identity = home.examine()
    assert (identity.bookie_id, identity.mismatches) == (home.bookie_id, ())
    assert [root.path.name for root in identity.roots] == ["data", "j", "a", "b"]


def test_moved_directories_are_still_the_bookies(home: Home, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    for name in "jab":
        shutil.move(tmp_path / name, new / name)
    home.configure(journal_dirs=f"{new}/j", ledger_dirs=f"{new}/a,{new}/b")
    assert home.examine().mismatches == ()


# --- what nothing repairs but the right settings


def test_directories_that_were_never_formatted_are_refused(tmp_path: Path) -> None:
    home = Home(tmp_path, disks=False)
    home.lose(home.data)
    with pytest.raises(
        ConfigError, match=r"not formatted: 'bk-spark bookie format --data-dir D'.*'bk-spark cookie fix BOOKIE_ID --data-dir "
    ):
        home.examine()


def test_a_directory_of_another_cluster_is_refused(home: Home) -> None:
    mine = home.examine().instance_id
    home.store.set(ZNODES.instance_id, b"other", 0)
    with pytest.raises(ConfigError, match=f"cluster with instance id {mine}, and memory:// is other: check the metadata URI"):
        home.examine()


def test_a_cluster_made_anew_at_the_same_place_is_another_one(home: Home) -> None:
    home.store = Home(home.root / "other", disks=False, tree=MemoryTree(lambda: 0)).store
    with pytest.raises(ConfigError, match="instance id"):
        home.examine()


@pytest.mark.parametrize("name", ["j", "a", "b"])
def test_a_directory_of_another_bookie_is_refused(home: Home, tmp_path: Path, name: str) -> None:
    other = Home(tmp_path / "other", tree=home.tree)
    shutil.rmtree(tmp_path / name)
    shutil.copytree(other.root / name, tmp_path / name)
    with pytest.raises(
        ConfigError, match=f"{tmp_path}/{name}.*belongs to bookie {other.bookie_id}, the others to bookie {home.bookie_id}"
    ):
        home.examine()


def test_the_data_directory_of_another_bookie_is_refused(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other", tree=home.tree)
    shutil.rmtree(home.data)
    shutil.copytree(other.data, home.data)
    with pytest.raises(ConfigError, match="give each bookie its own directories"):
        home.examine()


@pytest.mark.parametrize("order", ["b,a", "a,a2"])
def test_directories_in_another_order_or_a_copy_in_the_place_of_another_are_refused(
    home: Home, tmp_path: Path, order: str
) -> None:
    shutil.copytree(tmp_path / "a", tmp_path / "a2")
    home.configure(ledger_dirs=",".join(f"{tmp_path}/{name}" for name in order.split(",")))
    with pytest.raises(ConfigError, match=r"formatted as directory of entry_log-[01]: name .* in the order .* each once"):
        home.examine()


def test_a_journal_directory_named_for_entry_logs_is_refused(home: Home, tmp_path: Path) -> None:
    home.configure(journal_dirs=f"{tmp_path}/a", ledger_dirs=f"{tmp_path}/j,{tmp_path}/b")
    with pytest.raises(ConfigError, match="in the order in which they were formatted"):
        home.examine()


def test_a_directory_that_is_left_out_is_refused(home: Home, tmp_path: Path) -> None:
    home.configure(ledger_dirs=f"{tmp_path}/b")
    with pytest.raises(ConfigError, match="the order in which they were formatted"):
        home.examine()
    home.configure(ledger_dirs=f"{tmp_path}/a")
    with pytest.raises(
        ConfigError, match=r"the directory of entry_log-1 of bookie .* an empty one in the place of one that is lost"
    ):
        home.examine()


def test_an_old_disk_whose_place_another_one_has_taken_is_refused(home: Home, tmp_path: Path) -> None:
    restore = home.snapshot(tmp_path / "a")
    home.lose(tmp_path / "a")
    home.fix()
    restore()
    with pytest.raises(ConfigError, match=f"{tmp_path}/a.*another directory has taken its place.*empty this one"):
        home.examine()


def test_directories_under_another_bookies_cookie_are_refused(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other", tree=home.tree)
    home.store.set(ZNODES.cookie(home.bookie_id), home.store.get(ZNODES.cookie(other.bookie_id)).value, 1)
    with pytest.raises(ConfigError, match=f"is that of bookie {other.bookie_id} of.*give each bookie its own directory"):
        home.examine()


@pytest.mark.parametrize("name", [COOKIE_FILE, BOOT_FILE])
def test_a_file_of_a_newer_version_is_refused_by_number(home: Home, tmp_path: Path, name: str) -> None:
    (tmp_path / "a" / name).write_bytes(encode_fields(f"bk_spark {name}", 9, []))
    with pytest.raises(FormatVersionError, match=f"{tmp_path}/a/{name} has format version 9"):
        home.examine()


def test_an_operator_that_names_another_bookie_is_refused(home: Home) -> None:
    with pytest.raises(ConfigError, match=f"the bookie id is 'h:9-x': .*belongs to bookie {home.bookie_id}"):
        home.examine(bookie_id="h:9-x")


# --- the loss of a disk


@pytest.mark.parametrize("name", ["j", "a", "b"])
def test_an_empty_directory_where_one_was_is_a_lost_disk(home: Home, tmp_path: Path, name: str) -> None:
    home.lose(tmp_path / name)
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, True)
    assert f"{tmp_path}/{name}" in str(found.error)
    assert f"bookie {home.bookie_id} had files there: mount the right disk" in str(found.error)
    assert f"run '{home.fix_command}'" in str(found.error)


def test_an_empty_data_directory_is_a_lost_disk_where_the_others_know_whose_it_was(home: Home) -> None:
    home.lose(home.data)
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, True)
    assert "the data directory" in str(found.error)


def test_a_new_file_system_is_an_empty_directory(home: Home, tmp_path: Path) -> None:
    home.lose(tmp_path / "a")
    (tmp_path / "a" / "lost+found").mkdir()
    assert the_mismatch(home).is_automatic


def test_a_directory_without_cookie_that_is_not_empty_is_left_to_the_operator(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a" / "entry_log").mkdir(exist_ok=True)
    (tmp_path / "a" / COOKIE_FILE).unlink()
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, False)
    assert "holds 'entry_log'" in str(found.error)


@pytest.mark.parametrize("which", [["data", "j", "a", "b"], ["data"], ["a"]])
def test_disks_restored_from_a_snapshot_are_lost_disks(home: Home, tmp_path: Path, which: list[str]) -> None:
    restores = [home.snapshot(tmp_path / name) for name in which]
    home.run().end()
    for restore in restores:
        restore()
    found = home.examine().mismatches
    assert len(found) == len(which)
    assert all(one.is_loss and one.is_automatic for one in found)
    assert "is 1, epoch 0: the last boot of bookie" in str(found[0].error)
    assert "was number 2" in str(found[0].error)


def test_of_two_copies_of_all_disks_the_second_one_to_boot_is_refused(home: Home, tmp_path: Path) -> None:
    names = ("data", "j", "a", "b")
    for name in names:
        shutil.copytree(tmp_path / name, tmp_path / "copy" / name)
    home.boot()
    clone = tmp_path / "copy"
    home.root = clone
    home.configure(journal_dirs=f"{clone}/j", ledger_dirs=f"{clone}/a,{clone}/b")
    with pytest.raises(ConfigError, match="is a copy, or was restored"):
        home.boot()


def test_of_two_copies_that_booted_as_often_only_one_goes_on(home: Home) -> None:
    """The number is the same, the token is not."""
    home.change_stored(lambda stored: replace(stored, boot=replace(stored.boot, token="another")))
    assert [one.is_loss for one in home.examine().mismatches] == [True] * 4


def test_a_directory_without_boot_file_is_a_lost_disk(home: Home, tmp_path: Path) -> None:
    (tmp_path / "b" / BOOT_FILE).unlink()
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, True)
    assert "the boot number of the directory of entry_log-1 is missing" in str(found.error)


def test_a_data_directory_that_lists_others_than_the_metadata_store_is_a_lost_disk(home: Home) -> None:
    cookie = home.cookies()[home.data]
    (home.data / COOKIE_FILE).write_bytes(encode_cookie(replace(cookie, places=cookie.places[:-1])))
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, True)


# --- what only an operator repairs


def test_a_bookie_that_was_removed_from_the_cluster_is_refused(home: Home) -> None:
    """Protocol rule 48."""
    home.store.delete(ZNODES.cookie(home.bookie_id))
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (True, False)
    assert "was removed from the cluster: format an empty directory instead" in str(found.error)


def test_a_metadata_store_that_is_behind_the_disks_is_left_to_the_operator(home: Home) -> None:
    """Not a disk is old, the metadata store is: a bookie that took its own disks for lost would go along with that."""
    old = home.stored()
    home.run().end()
    home.change_stored(lambda stored: old)
    found = home.examine().mismatches
    assert [(one.is_loss, one.is_automatic) for one in found] == [(True, False)] * 4
    assert "the metadata store knows bookie" in str(found[0].error)
    home.fix()
    assert home.run().possible_loss


def test_a_cookie_is_missed_only_after_a_sync(home: Home) -> None:
    """Storage rule 8: a follower that lags must not invent an absence."""
    synced: list[str] = []

    class Lagging(MemoryStore):
        def sync(self, path: str) -> None:
            synced.append(path)

        def get(self, path: str):
            assert path != ZNODES.cookie(home.bookie_id) or path in synced
            return super().get(path)

    assert home.examine(store=Lagging(home.tree)).mismatches == ()


@pytest.mark.parametrize("value", [b"4\n", b"\xff"])
def test_a_damaged_znode_is_left_to_the_operator(home: Home, value: bytes) -> None:
    home.store.set(ZNODES.cookie(home.bookie_id), value, 1)
    found = the_mismatch(home)
    assert isinstance(found.error, CorruptionError)
    assert (found.is_loss, found.is_automatic) == (True, False)


@pytest.mark.parametrize("name", [COOKIE_FILE, BOOT_FILE])
@pytest.mark.parametrize("root", ["data", "j"])
def test_a_damaged_file_is_left_to_the_operator(home: Home, tmp_path: Path, name: str, root: str) -> None:
    path = tmp_path / root / name
    path.write_bytes(path.read_bytes()[:-10])
    found = the_mismatch(home)
    assert isinstance(found.error, CorruptionError)
    assert (found.is_loss, found.is_automatic) == (True, False)
    assert f"{path} is damaged" in str(found.error)
    assert f"'{home.fix_command}'" in str(found.error)


def test_a_damaged_cookie_of_the_only_directory_is_damage(tmp_path: Path) -> None:
    home = Home(tmp_path, disks=False)
    (home.data / COOKIE_FILE).write_bytes(b"")
    with pytest.raises(CorruptionError, match=f"{home.data}/cookie"):
        home.examine()


def test_journals_that_move_to_a_directory_of_their_own_are_left_to_the_operator(tmp_path: Path) -> None:
    home = Home(tmp_path, disks=False)
    (tmp_path / "j").mkdir()
    home.configure(journal_dirs=f"{tmp_path}/j")
    moved, empty = home.examine().mismatches
    assert "was the directory of journal-0 too" in str(moved.error)
    assert (moved.is_loss, moved.is_automatic) == (True, False)
    assert (empty.is_loss, empty.is_automatic) == (True, True)


# --- what loses nothing


def test_a_directory_added_at_the_end_is_named_and_loses_nothing(home: Home, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    home.configure(ledger_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c")
    found = the_mismatch(home)
    assert (found.is_loss, found.is_automatic) == (False, True)
    assert f"is new to bookie {home.bookie_id}: run '{home.fix_command}' to add it" in str(found.error)
