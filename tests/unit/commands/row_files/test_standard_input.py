"""``log append NAME -``: standard input in every format, an Arrow stream as it comes."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from bk_spark.commands.output import ProgressBar
from bk_spark.commands.row_files.append_files import AppendedFiles, read_files
from bk_spark.commands.row_files.named_file import named_files
from bk_spark.commands.row_files.written import write_arrow, write_csv, write_json, write_parquet, write_tsv
from bk_spark.errors import ConfigError
from tests.unit.commands.row_files.files import Folder, appended

ROWS = pa.table({"id": pa.array([1, None], pa.int64()), "s": ["a", "b"]})


class Piped:
    """Puts bytes on standard input."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, data: bytes, form: str | None = None) -> pa.Table:
        self.source = io.BytesIO(data)
        stdin = SimpleNamespace(buffer=io.BufferedReader(self.source), isatty=lambda: False)
        self._patch.setattr(sys, "stdin", stdin)
        return read_files(AppendedFiles("log", None, named_files(["-"], form)), ProgressBar()).read_all()

    def refusal(self, data: bytes, form: str | None = None) -> str:
        with pytest.raises(ConfigError) as refused:
            self(data, form)
        assert "\n" not in str(refused.value)
        return str(refused.value)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Piped:
    return Piped(monkeypatch)


def written(write, rows: pa.Table = ROWS) -> bytes:
    out = pa.BufferOutputStream()
    write(rows.to_batches(), rows.schema, out)
    return out.getvalue().to_pybytes()


def stream(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (write_arrow, None),
        (write_arrow, "arrow"),
        (write_parquet, "parquet"),
        (write_csv, "csv"),
        (write_tsv, "tsv"),
        (write_json, "json"),
    ],
)
def test_what_log_read_prints_in_any_format_log_append_takes_from_a_pipe(piped, write, form):
    assert piped(written(write), form).to_pylist() == ROWS.to_pylist()


def test_an_arrow_stream_is_not_kept_and_read_as_it_is_asked_for(piped, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    many = pa.table({"id": range(200_000)})
    piped(stream(ROWS))
    assert piped(stream(ROWS) + stream(ROWS)).num_rows == 4
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(source := io.BytesIO(stream(many) * 4)), isatty=bool)
    )
    reader = read_files(AppendedFiles("log", None, named_files(["-"], None)), ProgressBar())
    next(reader)
    assert source.tell() < len(stream(many)) * 1.1
    assert sum(batch.num_rows for batch in reader) == 600_000


@pytest.mark.parametrize(
    ("data", "form", "says"),
    [
        (b"", None, "nothing came on standard input"),
        (b"", "csv", "nothing came on standard input"),
        (b"a,b\n1,2\n", None, "it begins with b'a,b\\n1,2\\n', as no Arrow stream does: name another format by --format"),
        (b"A,b\n1,2\n", None, "name another format by --format"),
        (b'{"a": 1}\n', None, "name another format by --format"),
        (b"PAR1\x15\x04\x15\x80", None, "name another format by --format"),
        (b"FEA1\0\0\0\0\0\0", None, "name another format by --format"),
        (stream(ROWS) + b"x", None, "follows the end"),
        (stream(ROWS)[:-8], None, "perhaps cut off"),
        (written(write_arrow) * 2, None, "several files in one"),
        (written(write_arrow)[:-3], None, "cannot be read as arrow"),
        (written(write_parquet), "csv", "it seems to be Parquet"),
        (gzip.compress(b"a\n1\n", mtime=0), "csv", "it is compressed by gzip"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_not_as_told_is_refused_in_a_sentence(piped, data, form, says):
    said = piped.refusal(data, form)
    assert "'-'" in said
    assert says in said


def test_closed_input_and_a_terminal_are_refused(monkeypatch):
    for stdin, says in ((None, "standard input is closed"), (SimpleNamespace(isatty=lambda: True), "is a terminal")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(ConfigError, match=says):
            named_files(["-"], None)


def test_no_room_for_what_came_is_told_with_the_way_out(piped, monkeypatch):
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda: full)
        assert "TMPDIR" in piped.refusal(b"a,b\n1,2\n", "csv")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "add .gz to the name"),
        ("x.jsonl", gzip.compress(b'{"a": 1}\n', mtime=0), "add .gz to the name"),
        ("x.parquet", gzip.compress(b"x", mtime=0), "decompress it"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16"), "it seems to be UTF-16"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16-le"), "it seems to be UTF-16"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16-be"), "it seems to be UTF-16"),
        ("x.jsonl", '{"a": 1}'.encode("utf-16"), "it seems to be UTF-16"),
        ("x.csv", "näme,b\n1,2\n".encode("latin-1"), "convert it to UTF-8 first"),
        ("x.csv", "name,b\n1,ü\n".encode("latin-1"), "which is not UTF-8: convert it first"),
        ("x.jsonl", '{"a": "ü"}'.encode("latin-1"), "convert it to UTF-8 first"),
        ("x.jsonl", written(write_parquet), "it seems to be Parquet"),
        ("x.csv", b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0", "save it as CSV"),
        ("x.parquet", written(write_arrow), "it seems to be Arrow"),
        ("x.arrow", written(write_parquet), "it seems to be Parquet"),
        ("x.arrow", b"FEA1\0\0\0\0\0\0\0\0", "write it as version 2"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_file_that_is_something_else_is_refused_with_what_it_seems_to_be(tmp_path, name, data, says):
    with pytest.raises(ConfigError) as refused:
        appended(Folder(tmp_path)(name, data))
    assert says in str(refused.value)
