"""The archive of pyspark with byte code holds what it held, and gives the byte code to who imports from it."""

from __future__ import annotations

import zipfile
import zipimport
from pathlib import Path

import pytest

from tests.spark.byte_code import add_byte_code


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("some/__init__.py", "def told():\n    return 'told'\n")
        made.writestr("some/tests/test_it.py", "def told(): pass\n")
        made.writestr("some/words.json", "{}")
    return path


def held(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_modules_have_byte_code_beside_all_that_was_there(archive: Path) -> None:
    before = held(archive)
    add_byte_code(archive)
    after = held(archive)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"some/__init__.pyc"}
    assert list(archive.parent.iterdir()) == [archive]


def test_an_import_takes_the_byte_code_and_names_the_file_of_its_source(archive: Path) -> None:
    add_byte_code(archive)
    importer = zipimport.zipimporter(str(archive))
    assert importer.get_filename("some").endswith("/some/__init__.pyc")
    code = importer.get_code("some")
    assert code.co_filename == f"{archive}/some/__init__.py"
    names: dict[str, object] = {}
    exec(code, names)
    assert names["told"]() == "told"  # type: ignore[operator]


def test_byte_code_is_added_once(archive: Path) -> None:
    add_byte_code(archive)
    once = held(archive)
    add_byte_code(archive)
    assert held(archive) == once
