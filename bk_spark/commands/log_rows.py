"""``bk-spark log read`` and ``log append``: rows of a log as tables, JSON, CSV, Parquet and Arrow, for shells and scripts."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.arguments import OF_A_LOG, Commands, add_password, application, count, password, plain_text
from bk_spark.commands.connect import bookkeeper, check_metadata_given
from bk_spark.commands.ledger import entry_line
from bk_spark.commands.log_changes import log_command
from bk_spark.commands.output import ProgressBar, print_line, print_record, print_records, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.commands.row_files.append_files import AppendedFiles, read_files
from bk_spark.commands.row_files.json_values import plain
from bk_spark.commands.row_files.named_file import FORMATS, named_files
from bk_spark.commands.row_files.output_file import OutputFile, output_file
from bk_spark.commands.row_files.type_names import column_types
from bk_spark.commands.row_files.written import write_arrow, write_csv, write_json, write_parquet, write_tsv
from bk_spark.errors import ConfigError, NoSuchLogError, SchemaMismatchError
from bk_spark.log.log_handle import Log
from bk_spark.log.rows.latest.asked import ALL, LATEST, VIEWS
from bk_spark.log.stored.schema import MERGE_ARGUMENT, Schema
from bk_spark.log.stored.values import Content
from bk_spark.rows.where.condition import parse_where

SHOWN = 100
"""Rows that a person is shown unless ``--limit`` says another number; files and pipes take all."""


def add(group: Commands) -> None:
    read = log_command(group, "read", "one log's rows or entries", _read)
    text = "default: by the name of --output, else json lines, and entries as text or, behind 0x, in hexadecimal"
    formats = read.add_argument("--format", choices=sorted(_WRITERS), help=text)
    formats.metavar = "F"
    read.add_argument("--columns", type=plain_text, metavar="A,B", help="only these columns of rows, in this order")
    read.add_argument(
        "--where", type=_condition, metavar="CONDITION", help="only rows for which it holds, such as \"day = '2026-01-31'\""
    )
    text = "latest: of each key of a log with lanes the newest row alone (default: all)"
    read.add_argument("--view", choices=VIEWS, default=ALL, help=text)
    text = "with --view latest: a boolean column; keys are left out whose newest row has true there"
    read.add_argument("--deleted-by", type=plain_text, metavar="COLUMN", help=text)
    text = f"at most N rows or entries (default: {SHOWN} for a table, and on a terminal for json and entries; else all)"
    read.add_argument("--limit", type=count, metavar="N", help=text)
    text = "write there instead of to stdout, in the format that the name tells, such as .parquet or .csv.gz"
    read.add_argument("--output", metavar="FILE", help=text)
    add_password(read, OF_A_LOG)
    append = log_command(
        group, "append", "append files as rows, all of them in one commit: every column of every file, or nothing", _append
    )
    text = (
        "Parquet, Arrow, CSV, TSV or JSON lines, the texts also compressed, such as .csv.gz; - reads standard input: Arrow, or "
        "what --format says"
    )
    append.add_argument("files", nargs="+", metavar="FILE", help=text)
    append.add_argument("--format", choices=FORMATS, metavar="F", help="of all files; default: by each file's name")
    append.add_argument("--create", action="store_true", help="create the log if it does not exist")
    append.add_argument("--merge-schema", action="store_true", help="add columns that the log, or some of the files, lack")
    text = (
        "types of columns of CSV and JSON, such as zip:string,price:decimal(10,2) (default: the log's, or what all values fit)"
    )
    append.add_argument("--types", type=_types, metavar="COLUMN:TYPE,…", help=text)
    text = "texts of CSV, without quotes, that are null, such as NA,- (default: only the empty one, which always is)"
    append.add_argument("--null-values", type=plain_text, metavar="A,B", help=text)
    text = "drop the commit if the log has this version of this application, or a later one"
    append.add_argument("--application", type=application, metavar="ID:VERSION", help=text)
    add_password(append, OF_A_LOG)


# --- read


def _read(args: argparse.Namespace) -> None:
    """Print the first rows or entries, or write all of them."""
    output = output_file(args.output, args.format)
    if args.deleted_by is not None and args.view != LATEST:
        raise UsageError("--deleted-by only works with --view latest: give that, too, or leave it out")
    if args.json and args.format not in (None, "json") and output.path is None:
        raise UsageError(f"--json contradicts --format {args.format}: leave one out")
    limit = SHOWN if args.limit is None and _is_for_people(output) else args.limit
    with bookkeeper(args) as client:
        log = client.open_log(args.name, password=password(args))
        content = log.snapshot().content
        if content is Content.ENTRIES and (args.columns or args.where or args.view != ALL):
            raise ConfigError("log", args.name, "it holds entries: --columns, --where and --view are for rows")
        if content is Content.ENTRIES and output.form is None:
            _print_entries(log, limit, args.json)
            return
        batches, schema = _batches(log, content, args)
        with output.opened() as out:
            left = _Limited(batches, limit)
            _WRITERS[output.form or "json"](left, schema, out)
    if output.path is not None:
        _tell_written(args, left)
    elif left.is_cut:
        say(f"only the first {limit} are shown: --limit N shows more")


def _is_for_people(output: OutputFile) -> bool:
    """A table always is. Who redirects JSON lines or entries to a file or a program wants all, as with other formats."""
    if output.path is not None:
        return False
    return output.form == "table" or (output.form in (None, "json") and sys.stdout.isatty())


def _tell_written(args: argparse.Namespace, written: _Limited) -> None:
    if args.json:
        record = {"log": args.name, "output": args.output, "rows": written.rows, "has_more": written.is_cut}
        print_record(record, as_json=True)
        return
    more = ", and the log has more: --limit N cuts" if written.is_cut else ""
    say(f"{written.rows} rows of log '{args.name}' are in {args.output}{more}")


def _batches(log: Log, content: Content | None, args: argparse.Namespace) -> tuple[Iterable[pa.RecordBatch], pa.Schema]:
    if content is None:
        return [], pa.schema([])
    if content is Content.ENTRIES:
        batches = log.read()
        first = next(batches, None)
        return ([], pa.schema([])) if first is None else (itertools.chain([first], batches), first.schema)
    columns = None if args.columns is None else [name.strip() for name in args.columns.split(",")]
    reader = log.read_rows(columns, args.where, view=args.view, deleted_by=args.deleted_by)
    return reader, reader.schema


def _print_entries(log: Log, limit: int | None, as_json: bool) -> None:
    left = _Limited(log.read(), limit)
    for batch in left:
        columns = (batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload"))
        for ledger_id, entry_id, payload in zip(*columns, strict=True):
            print_line(entry_line({"ledger_id": ledger_id}, entry_id, payload, as_json=as_json))
    if left.is_cut:
        say(f"only the first {limit} are shown: --limit N shows more")


class _Limited:
    """The first rows of some batches; None for all. ``rows`` says afterwards how many, ``is_cut`` whether there were more."""

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._batches = batches
        self._limit = limit
        self.is_cut = False
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        for batch in self._batches:
            if left is not None and batch.num_rows > left:
                self.is_cut = True
                batch = batch.slice(0, left)
            if batch.num_rows:
                self.rows += batch.num_rows
                yield batch
            if self.is_cut:
                return
            left = None if left is None else left - batch.num_rows


def _write_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO) -> None:
    if not schema.names:
        return
    records = [row for batch in batches for row in plain(batch.to_struct_array())]
    with contextlib.redirect_stdout(_Text(out)):
        print_records(records, schema.names, as_json=False)


class _Text:
    """Text written to a binary file."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text.encode("utf-8", "surrogateescape"))

    def flush(self) -> None:
        self._out.flush()


_WRITERS: dict[str, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO], None]] = {
    "arrow": write_arrow,
    "csv": write_csv,
    "json": write_json,
    "parquet": write_parquet,
    "table": _write_table,
    "tsv": write_tsv,
}


# --- append


def _append(args: argparse.Namespace) -> None:
    check_metadata_given(args)
    files = named_files(args.files, args.format)
    nulls = () if args.null_values is None else tuple(args.null_values.split(","))
    with bookkeeper(args) as client, ProgressBar() as progress:
        stored = _stored_schema(client, args)
        call = AppendedFiles(args.name, stored, files, args.types or {}, nulls, args.merge_schema)
        try:
            version = client.append_rows(
                args.name,
                read_files(call, progress),
                args.application,
                create=args.create,
                merge_schema=args.merge_schema,
                password=password(args),
            )
        except SchemaMismatchError as problem:
            raise SchemaMismatchError(problem.log, problem.problem.replace(MERGE_ARGUMENT, "--merge-schema")) from None
    record = {"log": args.name, "version": version.version, "rows": version.added.rows}
    if version.duplicate_of is not None:
        record = {"log": args.name, "version": version.version, "rows": 0, "duplicate_of": version.duplicate_of}
    print_record(record, as_json=args.json)


def _condition(text: str) -> str:
    """Whether its columns exist is the log's business."""
    condition = plain_text(text)
    try:
        parse_where("where", condition)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(f"{condition!r}: {problem.remedy}") from None
    return condition


def _types(text: str) -> dict[str, pa.DataType]:
    try:
        return column_types(plain_text(text))
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(problem.remedy) from None


def _stored_schema(client: BookKeeper, args: argparse.Namespace) -> Schema | None:
    """Of the log, in Spark's JSON; None without a log or without content. Raises NoSuchLogError unless one is to be created."""
    uid = client.logs.names.find_usable(args.name)
    if uid is None:
        if args.create:
            return None
        raise NoSuchLogError(args.name)
    head = client.logs.names.head(args.name, uid)
    if head.content is Content.ENTRIES:
        raise SchemaMismatchError(args.name, "the log holds entries, the data is rows: write them to another log")
    return None if head.schema_id is None else client.logs.reader.schema(args.name, uid, head.schema_id)
