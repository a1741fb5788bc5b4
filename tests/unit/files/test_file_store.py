"""A tier's files by their address."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as fs
import pytest

from bk_spark.files.file_store import FileStore


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file:/{}"], ids=["ours", "Hadoop's", "two slashes"])
def test_a_file_of_a_disk_is_found_in_whatever_form_an_engine_noted_it(tmp_path: Path, form: str) -> None:
    (tmp_path / "a b.parquet").write_bytes(b"rows")
    store, address = FileStore({}), form.format(tmp_path / "a b.parquet")
    assert store.size(address) == 4
    with store.open_input(address) as opened:
        assert opened.read() == b"rows"


@pytest.mark.parametrize(
    "address", ["gs://bucket/a/b", "gs://anonymous@bucket/a/b", "abfs://bucket@account/a/b", "s3://bucket/a/b"]
)
def test_who_asks_or_where_is_no_part_of_a_path_in_an_object_store(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(FileStore, "_known", lambda self, which, made: None)
    assert FileStore({})._at(address)[1] == "bucket/a/b"


def test_a_folder_that_somebody_else_deletes_meanwhile_is_gone_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    store, deletes = FileStore({}), []

    class Racing(fs.LocalFileSystem):
        def delete_dir(self, path: str) -> None:
            deletes.append(path)
            super().delete_dir(path)
            raise FileNotFoundError(path)

    monkeypatch.setattr(FileStore, "_at", lambda self, address: (Racing(), str(tmp_path / "folder")))
    store.delete_folder("file:///folder")
    assert len(deletes) == 1
