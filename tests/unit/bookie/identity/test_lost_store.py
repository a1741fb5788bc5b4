"""A metadata store without a cluster, where directories belong to a bookie of one: nobody is told to initialise it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.cookie import bookie_id_of, format_bookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.bookie.identity.identity import check_store, examine
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError
from bk_spark.metadata.registration import initialise_cluster, instance_id
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")


def new_store() -> MemoryStore:
    return MemoryStore(MemoryTree(clock_ms=lambda: 0))


@pytest.fixture
def formatted(tmp_path: Path) -> tuple[Directories, str]:
    """Directories of a bookie, and the instance id of its cluster. The store of that cluster is not there any more."""
    store = new_store()
    initialise_cluster(store, ZNODES)
    directories = Directories.of(tmp_path / "data", BookieConfig(ledger_dirs=str(tmp_path / "more")))
    format_bookie(directories, store, ZNODES, "b1")
    return directories, instance_id(store, ZNODES)


def test_whoever_works_on_a_bookies_directories_is_told_which_cluster_the_store_has_lost(
    formatted: tuple[Directories, str],
) -> None:
    directories, instance = formatted
    told = f"bookie b1-.* of the cluster with instance id {instance}: the store has lost that cluster, or never had it; check"
    for call in (
        lambda: check_store(directories, new_store(), ZNODES.root, REAL_DISK),
        lambda: examine(directories, new_store(), ZNODES, REAL_DISK),
        lambda: bookie_id_of(directories.data_dir, new_store(), ZNODES),
        lambda: format_bookie(directories, new_store(), ZNODES, "b2"),
    ):
        with pytest.raises(ConfigError, match=told) as problem:
            call()
        assert "cluster init" not in str(problem.value)


def test_one_directory_with_a_cookie_is_enough(formatted: tuple[Directories, str]) -> None:
    """The data directory may be the disk that was lost."""
    directories, instance = formatted
    (directories.data_dir / COOKIE_FILE).unlink()
    (directories.data_dir / "boot").unlink()
    with pytest.raises(ConfigError, match=f"more belongs to bookie b1-.*{instance}"):
        check_store(directories, new_store(), ZNODES.root, REAL_DISK)


def test_a_damaged_cookie_and_files_without_one_count_as_a_bookies(formatted: tuple[Directories, str]) -> None:
    directories, _ = formatted
    (directories.data_dir / COOKIE_FILE).write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="belongs to a bookie of a cluster that cannot be read"):
        check_store(directories, new_store(), ZNODES.root, REAL_DISK)
    (directories.data_dir / COOKIE_FILE).unlink()
    (directories.data_dir / "journal").mkdir()
    with pytest.raises(ConfigError, match="holds 'journal', as if a bookie of some cluster had run there"):
        check_store(directories, new_store(), ZNODES.root, REAL_DISK)


def test_empty_and_missing_directories_and_an_initialised_store_raise_nothing(tmp_path: Path) -> None:
    directories = Directories.of(tmp_path / "data", BookieConfig(ledger_dirs=str(tmp_path)))
    (tmp_path / "lost+found").mkdir()
    check_store(directories, new_store(), ZNODES.root, REAL_DISK)
    (tmp_path / "journal").mkdir()
    store = new_store()
    initialise_cluster(store, ZNODES)
    check_store(directories, store, ZNODES.root, REAL_DISK)
