"""Writes rows as Parquet, Arrow, CSV or JSON lines, so that ``log append`` reads the same rows from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from bk_spark.commands.row_files import json_values, text_values
from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.commands.row_files.reading import in_column
from bk_spark.errors import ConfigError

Batches = Iterable[pa.RecordBatch]


def write_json(batches: Batches, schema: pa.Schema, out: BinaryIO) -> None:
    for batch in batches:
        columns = [json_values.plain(column) for column in batch.columns]
        rows = zip(*columns, strict=True)
        out.write("".join(f"{json_values.dumped(dict(zip(schema.names, row, strict=True)))}\n" for row in rows).encode())


def write_csv(batches: Batches, schema: pa.Schema, out: BinaryIO) -> None:
    """Texts are quoted, so that a null, which is nothing between two commas, is not the empty text."""
    write_texts(batches, schema, out, ",")


def write_tsv(batches: Batches, schema: pa.Schema, out: BinaryIO) -> None:
    write_texts(batches, schema, out, "\t")


def write_texts(batches: Batches, schema: pa.Schema, out: BinaryIO, delimiter: str) -> None:
    if not schema.names:
        return
    out.write(f"{delimiter.join(_quoted(pa.array(schema.names, pa.string())).to_pylist())}\n".encode())
    for batch in batches:
        columns = [_cells(column, name) for column, name in zip(batch.columns, schema.names, strict=True)]
        lines = columns[0] if len(columns) == 1 else _joined(columns, delimiter)
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), pc.fill_null(lines, "")), "\n")
        out.write(text[0].as_buffer())
        out.write(b"\n")


def write_parquet(batches: Batches, schema: pa.Schema, out: BinaryIO) -> None:
    with parquet.ParquetWriter(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_arrow(batches: Batches, schema: pa.Schema, out: BinaryIO) -> None:
    with pa.ipc.new_file(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _joined(columns: list[pa.Array], delimiter: str) -> pa.Array:
    return pc.binary_join_element_wise(*columns, delimiter, null_handling="replace", null_replacement="")


def _cells(column: pa.Array, name: str) -> pa.Array:
    try:
        with in_column(name):
            texts = text_values.to_texts(column)
    except BadValue as bad:
        raise ConfigError("--format", "csv", str(bad)) from None
    is_plain = not (pa.types.is_string(column.type) or pa.types.is_nested(column.type) or pa.types.is_binary(column.type))
    return texts if is_plain else _quoted(texts)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
