"""``log read --output``: names that stand for what is open already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bk_spark.commands.row_files.output_file import output_file


def test_names_of_standard_output_are_standard_output():
    for name in (None, "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert output_file(name, "csv").path is None


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_descriptor_is_written_to_whatever_it_is_and_no_file_is_replaced(tmp_path: Path, folder: str):
    path = tmp_path / "held"
    path.write_text("before\n")
    out, into = os.pipe()
    with path.open("ab") as appending, os.fdopen(out, "rb") as read:
        for descriptor in (into, appending.fileno()):
            with output_file(f"{folder}/{descriptor}", "csv").opened() as file:
                file.write(b"rows\n")
        os.close(into)
        assert read.read() == b"rows\n"
    assert path.read_text() == "before\nrows\n"


def test_a_pipe_with_a_name_is_written_to_through_links(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.csv").symlink_to("pipe")
    read = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with output_file(str(tmp_path / "link.csv"), None).opened() as file:
        file.write(b"rows\n")
    assert os.read(read, 10) == b"rows\n"
    os.close(read)
