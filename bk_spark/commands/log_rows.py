"""``bk-spark log read`` and ``log append``: rows of a log as tables, JSON, CSV, Parquet and Arrow, for shells and scripts."""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from bk_spark.client.log.log import Log
from bk_spark.client.log.stored.values import Content
from bk_spark.commands.arguments import OF_A_LOG, Commands, add_password, application, count, password
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.ledger import entry_line
from bk_spark.commands.log_changes import log_command
from bk_spark.commands.output import print_record, print_records, say
from bk_spark.errors import ConfigError
from bk_spark.rows.validity import without_text

SHOWN = 100
"""Rows that a person is shown unless ``--limit`` says another number; files take all."""

_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_DATASET_FORMATS = {"parquet": "parquet", "csv": "csv", "json": "json", "arrow": "ipc"}


def add(group: Commands) -> None:
    read = log_command(group, "read", "one log's rows or entries", _read)
    formats = read.add_argument("--format", choices=sorted(_WRITERS), help="default: json lines, entries as text")
    formats.metavar = "F"
    read.add_argument("--columns", metavar="A,B", help="only these columns of rows, in this order")
    read.add_argument("--where", metavar="CONDITION", help="only rows for which it holds, such as \"day = '2026-01-31'\"")
    text = f"at most N rows or entries (default: {SHOWN} for a table and json, all for csv, parquet and arrow)"
    read.add_argument("--limit", type=count, metavar="N", help=text)
    read.add_argument("--output", metavar="FILE", help="write there instead of to stdout")
    add_password(read, OF_A_LOG)
    append = log_command(group, "append", "append files as rows, all of them in one commit", _append)
    append.add_argument("files", nargs="+", metavar="FILE", help="Parquet, CSV, JSON lines or Arrow files, all of one kind")
    append.add_argument("--format", choices=sorted(_DATASET_FORMATS), metavar="F", help="default: by the files' names")
    append.add_argument("--create", action="store_true", help="create the log if it does not exist")
    append.add_argument("--merge-schema", action="store_true", help="add columns that the log lacks")
    text = "drop the commit if the log has this version of this application, or a later one"
    append.add_argument("--application", type=application, metavar="ID:VERSION", help=text)
    add_password(append, OF_A_LOG)


# --- read


def _read(args: argparse.Namespace) -> None:
    """Print the first rows or entries, or write all of them."""
    form = args.format or "json"
    shown = SHOWN if args.limit is None and form in ("json", "table") else args.limit
    with bookkeeper(args) as client:
        log = client.open_log(args.name, password=password(args))
        content = log.snapshot().content
        if content is None:
            return
        if content is Content.ENTRIES and (args.columns or args.where):
            raise ConfigError("log", args.name, "it holds entries: --columns and --where are for rows")
        if content is Content.ENTRIES and args.format is None:
            _print_entries(log, shown, args.json)
            return
        batches, schema = _batches(log, content, args)
        with _opened(args.output, form) as out:
            left = _Limited(batches, shown)
            _WRITERS[form](left, schema, out)
        if left.is_cut:
            say(f"only the first {shown} are shown: --limit N shows more")


def _batches(log: Log, content: Content, args: argparse.Namespace) -> tuple[Iterable[pa.RecordBatch], pa.Schema]:
    if content is Content.ENTRIES:
        batches = log.read()
        first = next(batches, None)
        return ([], pa.schema([])) if first is None else (itertools.chain([first], batches), first.schema)
    columns = None if args.columns is None else [name.strip() for name in args.columns.split(",")]
    reader = log.read_rows(columns, args.where)
    return reader, reader.schema


def _print_entries(log: Log, limit: int | None, as_json: bool) -> None:
    left = _Limited(log.read(), limit)
    for batch in left:
        columns = (batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload"))
        for ledger_id, entry_id, payload in zip(*columns, strict=True):
            print(entry_line({"ledger_id": ledger_id}, entry_id, payload, as_json=as_json))
    if left.is_cut:
        say(f"only the first {limit} are shown: --limit N shows more")


class _Limited:
    """The first rows of some batches; None for all. ``is_cut`` says afterwards whether there were more."""

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._batches = batches
        self._limit = limit
        self.is_cut = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        for batch in self._batches:
            if left is not None and batch.num_rows > left:
                self.is_cut = True
                batch = batch.slice(0, left)
            if batch.num_rows:
                yield batch
            if self.is_cut:
                return
            left = None if left is None else left - batch.num_rows


@contextlib.contextmanager
def _opened(path: str | None, form: str) -> Iterator[BinaryIO]:
    if path is None:
        if form in ("parquet", "arrow") and sys.stdout.isatty():
            raise ConfigError("--format", form, "it is not for a terminal: give --output FILE, or redirect")
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with Path(path).open("wb") as file:
            yield file
    except OSError as problem:
        raise ConfigError("--output", path, f"it cannot be written: {problem.strerror}") from None


def _write_json(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    for batch in batches:
        lines = (json.dumps({name: _plain(value) for name, value in row.items()}, default=str) for row in _listed(batch))
        out.write("".join(f"{line}\n" for line in lines).encode())


def _write_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    records = [{name: _plain(value) for name, value in row.items()} for batch in batches for row in _listed(batch)]
    with contextlib.redirect_stdout(_Text(out)):
        print_records(records, schema.names, as_json=False)


class _Text:
    """Text written to a binary file."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text.encode())

    def flush(self) -> None:
        self._out.flush()


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    from pyarrow import csv

    flat = pa.schema([pa.field(field.name, pa.string() if _is_not_flat(field.type) else field.type) for field in schema])
    with csv.CSVWriter(out, flat) as writer:
        for batch in batches:
            columns = [_flat(column) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))


def _is_not_flat(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind) or pa.types.is_null(kind))


def _flat(column: pa.Array) -> pa.Array:
    """CSV knows no nested values: they become JSON, bytes base64."""
    if not _is_not_flat(column.type):
        return column
    is_nested = pa.types.is_nested(column.type)
    plain = [_plain(value) for value in column.to_pylist()]
    texts = [None if one is None else json.dumps(one, default=str) if is_nested else str(one) for one in plain]
    return pa.array(texts, pa.string())


def _write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    with pa.ipc.new_file(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[str, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO], None]] = {
    "arrow": _write_arrow,
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
    "table": _write_table,
}


def _listed(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Text is given as bytes if some of the rows' text is no UTF-8."""
    try:
        return list(rows.to_pylist())
    except UnicodeDecodeError:
        plain = [column.cast(without_text(column.type)) for column in rows.columns]
        return list(pa.record_batch(plain, rows.schema.names).to_pylist())


def _plain(value: object) -> object:
    """A value that JSON can hold: bytes as base64; what else JSON lacks becomes text later."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


# --- append


def _append(args: argparse.Namespace) -> None:
    form = args.format or _format_of(args.files)
    with bookkeeper(args) as client:
        log = client.open_log(args.name, create=args.create, password=password(args))
        is_empty = log.snapshot().content is None
        # Texts have no types of their own: they are read as what the log has, if it has a schema.
        schema = None if is_empty or form not in ("csv", "json") else log.schema
        rows = _dataset(args.files, form, schema)
        try:
            version = log.append_rows(rows, args.application, merge_schema=args.merge_schema)
        except (pa.ArrowException, OSError) as problem:
            raise _unreadable(args.files, form, problem) from None
        record = {"log": args.name, "version": version.version, "rows": version.added.rows}
        if version.duplicate_of is not None:
            record = {"log": args.name, "version": version.version, "rows": 0, "duplicate_of": version.duplicate_of}
        print_record(record, as_json=args.json)


def _format_of(files: list[str]) -> str:
    kinds = {_SUFFIXES.get(Path(file).suffix.lower()) for file in files}
    kind = next(iter(kinds))
    if len(kinds) != 1 or kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise ConfigError("FILE", ", ".join(files), f"their names must all end in one kind of {known}, or give --format")
    return kind


def _dataset(files: list[str], form: str, schema: pa.Schema | None) -> pa.RecordBatchReader:
    from pyarrow import dataset

    for file in files:
        if not Path(file).is_file():
            raise ConfigError("FILE", file, "there is no such file")
    try:
        found = dataset.dataset(files, format=_DATASET_FORMATS[form], schema=schema)
        return found.scanner().to_reader()
    except (pa.ArrowException, OSError) as problem:
        raise _unreadable(files, form, problem) from None


def _unreadable(files: list[str], form: str, problem: Exception) -> ConfigError:
    return ConfigError("FILE", ", ".join(files), f"it cannot be read as {form}: {problem}")
