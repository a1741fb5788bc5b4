"""Reads Parquet and Arrow files, whose columns have types of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from bk_spark.commands.row_files.named_file import NamedFile
from bk_spark.commands.row_files.reading import reading
from bk_spark.commands.row_files.typed.arrow_streams import ArrowStreams
from bk_spark.commands.row_files.typed.whole_files import ARROW_MAGIC, open_arrow, open_parquet

PARQUET_ROWS = 16_384
"""That are read at once."""


class TypedSource:
    """A Parquet or Arrow file, which has types of its own."""

    def __init__(self, file: NamedFile) -> None:
        self.file = file
        self._opened: ArrowStreams | None = None
        with reading(file):
            if file.is_stream:
                self._opened = ArrowStreams(file.open())
                self.schema: pa.Schema = self._opened.schema
            else:
                with closing(file.open()) as opened:
                    self.schema = _schema(opened, file.form)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._opened is not None:
            with reading(self.file):
                yield from self._opened.batches()
            return
        with closing(self.file.open()) as opened, reading(self.file):
            yield from _batches(opened, self.file.form)
            self.file.check()


def _schema(opened: Any, form: str) -> pa.Schema:
    """Raises an error also where a file with a footer does not end with it."""
    if form == "parquet":
        return open_parquet(opened).schema_arrow
    return open_arrow(opened).schema if _is_arrow_file(opened) else ArrowStreams(opened).schema


def _batches(opened: Any, form: str) -> Iterator[pa.RecordBatch]:
    if form == "parquet":
        yield from _parquet_batches(opened)
    elif _is_arrow_file(opened):
        reader = open_arrow(opened)
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from ArrowStreams(opened).batches()


def _parquet_batches(opened: Any) -> Iterator[pa.RecordBatch]:
    file, rows = open_parquet(opened), 0
    for batch in file.iter_batches(PARQUET_ROWS, use_threads=False):
        rows += batch.num_rows
        yield batch
    if rows != file.metadata.num_rows:
        raise ValueError(f"it holds {rows} rows, and its footer says {file.metadata.num_rows}")


def _is_arrow_file(opened: Any) -> bool:
    magic = opened.read(len(ARROW_MAGIC))
    opened.seek(0)
    return bool(magic == ARROW_MAGIC)
