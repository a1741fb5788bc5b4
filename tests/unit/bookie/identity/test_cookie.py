"""Formatting: what becomes a bookie, under which id, and what does not (docs/rules.md, protocol rule 49, storage rule 9)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import BootRecord, read_boot
from bk_spark.bookie.identity.cookie import bookie_id_of, format_bookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE, Cookie, DirectoryPlace, decode_cookie, decode_stored
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.metadata.registration import initialise_cluster, instance_id
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(MemoryTree(clock_ms=lambda: 0))
    initialise_cluster(store, ZNODES)
    return store


def make(store: MemoryStore, data_dir: Path, prefix: str = "h:1", **settings: str) -> str:
    return format_bookie(Directories.of(data_dir, BookieConfig(**settings)), store, ZNODES, prefix)


def test_a_formatted_directory_has_the_id_that_formatting_gave(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = make(store, tmp_path / "d")
    assert re.fullmatch(r"h:1-[0-9a-f]{8}", bookie_id)
    assert bookie_id_of(tmp_path / "d", store, ZNODES) == bookie_id


def test_a_host_and_port_formatted_anew_is_another_bookie(store: MemoryStore, tmp_path: Path) -> None:
    """Protocol rule 49: nobody takes it for the old one."""
    assert len({make(store, tmp_path / str(number)) for number in range(3)}) == 3


def test_an_id_chosen_by_the_user_gets_the_random_suffix_too(store: MemoryStore, tmp_path: Path) -> None:
    assert re.fullmatch(r"rack-1.b-[0-9a-f]{8}", make(store, tmp_path, "rack-1.b"))


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", "ä", "x" * 201])
def test_an_id_that_apache_would_not_take_is_refused(store: MemoryStore, tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        make(store, tmp_path / "d", prefix)
    assert not (tmp_path / "d").exists()


def test_each_directory_gets_an_id_of_its_own_and_data_dir_and_znode_list_all(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = make(store, tmp_path / "d", journal_dirs=f"{tmp_path}/j", ledger_dirs=f"{tmp_path}/a,{tmp_path}/j")
    instance = instance_id(store, ZNODES)
    found = {name: decode_cookie((tmp_path / name / COOKIE_FILE).read_bytes(), name) for name in "dja"}
    ids = {name: cookie.directory_id for name, cookie in found.items()}
    assert len(set(ids.values())) == 3
    places = tuple(
        DirectoryPlace(use, ids[name])
        for use, name in (("data", "d"), ("journal-0", "j"), ("entry_log-1", "j"), ("entry_log-0", "a"))
    )
    assert found["d"] == Cookie(bookie_id, instance, ids["d"], ("data",), places)
    assert found["j"] == Cookie(bookie_id, instance, ids["j"], ("journal-0", "entry_log-1"))
    assert found["a"] == Cookie(bookie_id, instance, ids["a"], ("entry_log-0",))
    stored = decode_stored(store.get(ZNODES.cookie(bookie_id)).value, "z")
    assert stored.places == places
    assert stored.boot.number == 0
    assert {name: read_boot(REAL_DISK, tmp_path / name) for name in "dja"} == dict.fromkeys("dja", BootRecord(stored.boot))


def test_a_formatted_directory_is_not_formatted_again(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = make(store, tmp_path)
    with pytest.raises(ConfigError, match=f"formatted already, for bookie {bookie_id}"):
        make(store, tmp_path, "h:2")
    assert bookie_id_of(tmp_path, store, ZNODES) == bookie_id


@pytest.mark.parametrize("name", ["d", "j"])
def test_a_directory_that_holds_anything_is_not_formatted_and_nothing_else_is(
    store: MemoryStore, tmp_path: Path, name: str
) -> None:
    (tmp_path / name / "journal").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{tmp_path}/{name}.*not empty, it holds 'journal'"):
        make(store, tmp_path / "d", journal_dirs=f"{tmp_path}/j")
    assert store.children("/ledgers/cookies") == []
    assert not list(tmp_path.glob(f"*/{COOKIE_FILE}"))


def test_a_new_file_system_and_what_a_cut_formatting_left_count_as_empty(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "boot").write_bytes(b"of an earlier try")
    (tmp_path / "cookie.creating").write_bytes(b"half")
    bookie_id = make(store, tmp_path)
    assert bookie_id_of(tmp_path, store, ZNODES) == bookie_id


def test_a_directory_in_use_is_not_formatted(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    lock = REAL_DISK.lock(tmp_path / "j")
    with pytest.raises(ConfigError, match="another process uses it"):
        make(store, tmp_path / "d", journal_dirs=f"{tmp_path}/j")
    lock.release()
    make(store, tmp_path / "d", journal_dirs=f"{tmp_path}/j")


def test_one_directory_under_two_names_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "j")
    with pytest.raises(ConfigError, match="another process uses it"):
        make(store, tmp_path / "d", journal_dirs=f"{tmp_path}/j,{tmp_path}/alias")


def test_nothing_is_formatted_for_a_root_that_is_not_initialised(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bk-spark cluster init"):
        make(MemoryStore(MemoryTree(clock_ms=lambda: 0)), tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_that_is_not_formatted_has_no_id(store: MemoryStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"(not formatted|no such directory): 'bk-spark bookie format --data-dir D'"):
        bookie_id_of(tmp_path / name, store, ZNODES)


def test_a_bookie_of_another_cluster_or_one_that_was_removed_has_no_id_here(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = make(store, tmp_path)
    cookie = store.get(ZNODES.cookie(bookie_id)).value
    store.delete(ZNODES.cookie(bookie_id))
    with pytest.raises(ConfigError, match=f"{bookie_id}, which has no cookie in memory://"):
        bookie_id_of(tmp_path, store, ZNODES)
    store.create(ZNODES.cookie(bookie_id), cookie)
    store.set(ZNODES.instance_id, b"other", 0)
    with pytest.raises(ConfigError, match="check the metadata URI"):
        bookie_id_of(tmp_path, store, ZNODES)


def test_a_damaged_cookie_is_damage(store: MemoryStore, tmp_path: Path) -> None:
    make(store, tmp_path)
    (tmp_path / COOKIE_FILE).write_bytes(b"")
    with pytest.raises(CorruptionError, match=str(tmp_path / COOKIE_FILE)):
        bookie_id_of(tmp_path, store, ZNODES)


def test_a_file_in_the_place_of_a_directory_is_told_as_one(store: MemoryStore, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    for call in (lambda: make(store, file), lambda: make(store, tmp_path / "d", journal_dirs=str(file))):
        with pytest.raises(ConfigError, match=f"'{file}': it is a file: name a directory"):
            call()
    with pytest.raises(ConfigError, match=f"'{file}': it is a file: name a directory"):
        bookie_id_of(file, store, ZNODES)
    assert file.read_text() == "content"
