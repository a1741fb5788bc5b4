"""``log append`` takes every byte of a Parquet file, an Arrow file and Arrow streams, or refuses the file."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

from bk_spark.errors import ConfigError
from tests.unit.commands.row_files.files import Folder, appended

END = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.fixture
def put(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def stream(table: pa.Table, **options: bool) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue()


def file(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    return out.getvalue()


def pages(table: pa.Table, **options: bool) -> bytes:
    out = io.BytesIO()
    parquet.write_table(table, out, **options)
    return out.getvalue()


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        appended(path)
    said = str(refused.value)
    assert path.name in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize("is_legacy", [False, True])
def test_streams_behind_each_other_are_all_read(put, is_legacy):
    parts = [stream(part, use_legacy_format=is_legacy) for part in (ids(1, 2), ids(), ids(3))]
    assert appended(put("x.arrows", b"".join(parts))) == ids(1, 2, 3)


def test_streams_that_differ_in_what_a_program_notes_of_their_rows_go_together(put):
    noted = ids(2).replace_schema_metadata({"pandas": "RangeIndex(1, 2)"})
    assert appended(put("x.arrows", stream(ids(1)) + stream(noted)))["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("behind", "says"),
    [
        (stream(pa.table({"id": [1.5]})), "a stream with other columns follows the first: 'id' double"),
        (stream(pa.table({"other": [1]})), "a stream with other columns follows the first: 'other' int64"),
        (b"\n", "follows the end"),
        (b"garbage behind the end", "follows the end"),
        (b"\0" * 512, "follows the end"),
        (END, "follows the end"),
        (b"\xff\xff\xff\xff", "follows the end"),
        (gzip.compress(stream(ids(1)), mtime=0), "follows the end"),
        (file(ids(1)), "follows the end"),
        (stream(ids(1))[:-8], "perhaps cut off"),
        (stream(ids(1))[:-20], "cannot be read as arrow"),
        (stream(ids(1))[:20], "cannot be read as arrow"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_follows_a_stream_and_is_no_whole_stream_of_its_columns_is_refused(put, behind, says):
    assert says in refusal(put("x.arrows", stream(ids(1)) + behind))


@pytest.mark.parametrize("second", [ids(3, 4), ids(), ids(*range(500))], ids=len)
@pytest.mark.parametrize("first", [ids(1, 2), ids(), ids(*range(500))], ids=len)
def test_several_files_with_a_footer_in_one_are_refused(put, first, second):
    assert "several files in one" in refusal(put("x.arrow", file(first) + file(second)))
    assert "several files in one" in refusal(put("cut.arrow", file(first)[:-10] + file(second)))
    for has_index in (False, True):
        parts = (pages(one, write_page_index=has_index) for one in (first, second))
        assert "and another begins" in refusal(put("x.parquet", b"".join(parts)))


def test_where_two_parquet_files_meet_is_found_across_blocks(put, monkeypatch):
    path = put("x.parquet", pages(ids(1)) + pages(ids(2)))
    for block_bytes in (3, 5, 64):
        monkeypatch.setattr("bk_spark.commands.row_files.typed.whole_files._BLOCK_BYTES", block_bytes)
        assert f"ends at its byte {len(pages(ids(1)))}," in refusal(path)


@pytest.mark.parametrize("more", [b"x", b"\0" * 64, b"\n"])
def test_bytes_around_a_file_with_a_footer_are_refused(put, more):
    for name, data in (("x.arrow", file(ids(1))), ("x.parquet", pages(ids(1)))):
        refusal(put(name, data + more))
        refusal(put(name, more + data))


def test_files_of_other_writers_are_whole(put):
    frame = polars.DataFrame({"id": [1, 2], "s": ["a", None]})
    frame.write_ipc(put.path / "x.arrow")
    frame.write_ipc(put.path / "y.arrow", compression="zstd")
    frame.write_ipc_stream(put.path / "z.arrows")
    frame.write_parquet(put.path / "x.parquet")
    for name in ("x.arrow", "y.arrow", "z.arrows", "x.parquet"):
        assert appended(put.path / name).to_pylist() == frame.to_dicts()
    rows = pa.table({"s": [f"PAR1PAR1 {n}" for n in range(500)]})
    for has_index in (False, True):
        assert appended(put("y.parquet", pages(rows, write_page_index=has_index, use_dictionary=False))) == rows


def test_a_page_of_parquet_that_its_checksum_denies_is_refused(put):
    for is_dictionary in (False, True):
        rows = pa.table({"n": np.arange(20_000) % 500})
        data = bytearray(pages(rows, compression=None, use_dictionary=is_dictionary, write_page_checksum=True))
        assert appended(put("x.parquet", bytes(data))) == rows
        data[1000] ^= 1
        assert "checksum" in refusal(put("x.parquet", bytes(data)))
