"""Reads Parquet and Arrow files, whose columns have types of their own."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
from pyarrow import parquet

from bk_spark.commands.row_files.named_file import STDIN, NamedFile
from bk_spark.commands.row_files.reading import reading

PARQUET_ROWS = 16_384
"""That are read at once."""

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class TypedSource:
    """A Parquet or Arrow file, which has types of its own."""

    def __init__(self, file: NamedFile) -> None:
        self.file = file
        self._opened: Any = None
        with reading(file):
            if file.path == STDIN:
                self._opened = _open_stream(_Ends(file.open()))
                self.schema: pa.Schema = self._opened.schema
            else:
                with closing(file.open()) as opened:
                    self.schema = _schema(opened, file.form)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._opened is not None:
            with reading(self.file):
                yield from _stream_batches(self._opened)
            return
        with closing(self.file.open()) as opened, reading(self.file):
            yield from _typed_batches(opened, self.file.form)
            self.file.check()


class _Ends(io.RawIOBase):
    """An Arrow stream that remembers its last bytes."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self.last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = cast("bytes", self._opened.read(size))
        self.last = (self.last + found)[-8:] if len(found) < 8 else found[-8:]
        return found


class _Stream:
    def __init__(self, ends: _Ends) -> None:
        self.ends = ends
        self.reader = pa.ipc.open_stream(pa.PythonFile(ends, "r"))
        self.schema = self.reader.schema


def _open_stream(ends: _Ends) -> _Stream:
    return _Stream(ends)


def _stream_batches(stream: _Stream) -> Iterator[pa.RecordBatch]:
    yield from stream.reader
    if stream.ends.last != _END_OF_STREAM:
        raise ValueError("it ends without the mark of an Arrow stream's end: the program that wrote it was perhaps cut off")


def _schema(opened: Any, form: str) -> pa.Schema:
    if form == "parquet":
        return parquet.ParquetFile(opened).schema_arrow
    return pa.ipc.open_file(opened).schema if _is_arrow_file(opened) else _open_stream(_Ends(opened)).schema


def _typed_batches(opened: Any, form: str) -> Iterator[pa.RecordBatch]:
    if form == "parquet":
        yield from parquet.ParquetFile(opened).iter_batches(PARQUET_ROWS, use_threads=False)
    elif _is_arrow_file(opened):
        reader = pa.ipc.open_file(opened)
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from _stream_batches(_open_stream(_Ends(opened)))


def _is_arrow_file(opened: Any) -> bool:
    magic = opened.read(6)
    opened.seek(0)
    return bool(magic == b"ARROW1")
