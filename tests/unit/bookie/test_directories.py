"""Where the files of a bookie are. Ref: docs/formats.md, "Files of a bookie"."""

from __future__ import annotations

from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError

DATA = Path("/data")


def test_without_configuration_everything_is_inside_the_data_directory():
    places = Directories.of(DATA, BookieConfig())
    assert places.journals == (DATA / "journal",)
    assert places.entry_logs == (DATA / "entry_log",)
    assert (places.index, places.roots) == (DATA / "index", (DATA,))


def test_configured_directories_keep_their_order_and_the_data_directory_is_the_first_root():
    places = Directories.of(DATA, BookieConfig(journal_dirs="/nvme", ledger_dirs="/b, /a,/nvme"))
    assert places.journals == (Path("/nvme/journal"),)
    assert places.entry_logs == (Path("/b/entry_log"), Path("/a/entry_log"), Path("/nvme/entry_log"))
    assert places.roots == (DATA, Path("/nvme"), Path("/b"), Path("/a"))
    assert places.index == DATA / "index"


def test_the_data_directory_may_be_one_of_several():
    places = Directories.of(DATA, BookieConfig(ledger_dirs="/b,/data"))
    assert places.entry_logs == (Path("/b/entry_log"), DATA / "entry_log")
    assert places.roots == (DATA, Path("/b"))


@pytest.mark.parametrize("name", ["journal_dirs", "ledger_dirs"])
@pytest.mark.parametrize(("text", "problem"), [("/a,,/b", "an empty part"), ("/a,", "an empty part"), ("/a,/b,/a/", "twice")])
def test_a_list_with_an_empty_part_or_a_directory_twice_is_refused(name, text, problem):
    with pytest.raises(ConfigError, match=f"{name} .*{problem}"):
        Directories.of(DATA, BookieConfig(**{name: text}))


def test_what_is_missing_inside_the_roots_is_made(tmp_path):
    (tmp_path / "a").mkdir()
    places = Directories.of(tmp_path, BookieConfig(ledger_dirs=f"{tmp_path / 'a'}"))
    for _ in range(2):
        places.make(REAL_DISK)
    assert all(path.is_dir() for path in (*places.journals, *places.entry_logs, places.index))
    assert not (tmp_path / "entry_log").exists()
