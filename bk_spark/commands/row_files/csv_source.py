"""Reads CSV, and texts with tabs. All columns are texts at first; what they mean is decided for the whole column."""

from __future__ import annotations

import csv as python_csv
import io
import uuid
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from bk_spark.commands.row_files import text_values
from bk_spark.commands.row_files.bad_value import MAX_SHOWN
from bk_spark.commands.row_files.csv_quotes import OTHER_DELIMITERS, CheckedQuotes, other_delimiter
from bk_spark.commands.row_files.guessed_types import GuessedColumn
from bk_spark.commands.row_files.named_file import NamedFile
from bk_spark.commands.row_files.reading import BLOCK_BYTES, MAX_ROW_BYTES, in_column, reading, string_remedy
from bk_spark.errors import ConfigError


class CsvSource:
    """A text whose first row names the columns. A text without quotes may be null, a quoted one never is."""

    def __init__(self, file: NamedFile, null_values: tuple[str, ...], fixed: Container[str] = ()) -> None:
        """``fixed``: the columns whose types are those of the log, or of files with types."""
        self.file = file
        self._fixed = fixed
        self._delimiter = "\t" if file.form == "tsv" else ","
        self._convert_nulls = ["", *null_values]
        with reading(file), closing(file.open()) as opened:
            self.names, empty_lines = _header(opened, self._delimiter)
            self._refuse_no_name()
        self._header_rows = 1 + empty_lines if len(self.names) == 1 else 1
        """An empty line is a row of a file with one column: its null."""
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError("FILE", file.path, f"it has the column '{twice}' twice: rename one")

    def _refuse_no_name(self) -> None:
        """A name that only an accident writes is taken where the log has it."""
        for place, name in enumerate(self.names, 1):
            if name in self._fixed:
                continue
            if not name.strip():
                problem = f"column {place} of {len(self.names)} has no name in its first row"
                raise ValueError(f"{problem}: give it one, or leave it out (a separator at the end, an index without a name)")
            if "\0" in name:
                raise ValueError(
                    f"the name {name[:MAX_SHOWN]!r} in its first row has the character NUL: convert it to UTF-8 first"
                )

    def guess(self, columns: Mapping[str, GuessedColumn]) -> Iterator[int]:
        """Show each of ``columns`` all of its texts; yields numbers of rows on the way."""
        wanted = [(self.names.index(name), guessed) for name, guessed in columns.items() if name in self.names]
        if not wanted:
            return
        for batch in self._texts():
            for place, guessed in wanted:
                guessed.see(batch.column(place))
            yield batch.num_rows

    def batches(self, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        kinds = [types[name] for name in self.names]
        for batch in self._texts():
            with reading(self.file):
                columns = [
                    self._converted(_with_nulls(texts, kind), kind, name)
                    for texts, kind, name in zip(batch.columns, kinds, self.names, strict=True)
                ]
            yield pa.RecordBatch.from_arrays(columns, names=self.names)

    def _converted(self, texts: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        with in_column(name, lambda: string_remedy(name, is_fixed=name in self._fixed)):
            return text_values.from_texts(texts, kind)

    def _texts(self) -> Iterator[pa.RecordBatch]:
        """All columns as texts. A row that is longer than a block begins a new reading with larger ones."""
        done, block_bytes = 0, BLOCK_BYTES
        while True:
            try:
                for batch in self._read(block_bytes, done):
                    self._refuse_not_utf8(batch, done)
                    yield batch
                    done += batch.num_rows
                self.file.check()
                return
            except _RowTooLong:
                block_bytes *= 8
                if block_bytes > MAX_ROW_BYTES:
                    problem = f"one row has more than {MAX_ROW_BYTES} bytes: perhaps a quote is never closed"
                    raise ConfigError("FILE", self.file.path, problem) from None

    def _refuse_not_utf8(self, batch: pa.RecordBatch, done: int) -> None:
        for texts, name in zip(batch.columns, self.names, strict=True):
            if (found := text_values.not_utf8(texts)) is not None:
                place, text = found
                row = self._header_rows + done + place + 1
                problem = f"row {row} has {text[:MAX_SHOWN]!r} in column '{name}', which is not UTF-8: convert it first"
                raise self.file.unreadable(ValueError(problem))

    def _read(self, block_bytes: int, skip: int) -> Iterator[pa.RecordBatch]:
        places = [str(place) for place in range(len(self.names))]
        end, wrong = uuid.uuid4().hex, list[Any]()

        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        with reading(self.file), closing(self.file.open()) as opened:
            checked = CheckedQuotes(opened, self._delimiter)
            marked = _WithLastRow(checked, self._delimiter.join([end] * len(places)).encode())
            try:
                read = csv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=places)
                parse = csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(places) > 1,
                    invalid_row_handler=refuse,
                )
                convert = csv.ConvertOptions(
                    column_types=dict.fromkeys(places, pa.string()),
                    null_values=self._convert_nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                )
                reader = csv.open_csv(pa.PythonFile(marked, "r"), read, parse, convert)
                yield from self._without_last_row(_skipped(reader, self._header_rows + skip), end)
            except pa.ArrowInvalid as problem:
                if "straddl" in str(problem):
                    raise _RowTooLong from None
                if wrong and end in wrong[0].text:
                    raise self._open_quote(wrong[0]) from None
                raise

    def _open_quote(self, row: Any) -> ConfigError:
        """The row holds the one behind the text's end, so its quote is never closed."""
        where = f"row {row.number}, which begins with {row.text.splitlines()[0][:MAX_SHOWN]!r}"
        return ConfigError(
            "FILE", self.file.path, f"a quote is open at its end: it is cut off, or a quote is missing in {where}"
        )

    def _without_last_row(self, batches: Iterator[pa.RecordBatch], end: str) -> Iterator[pa.RecordBatch]:
        held: pa.RecordBatch | None = None
        for batch in batches:
            if held is not None:
                yield held
            held = batch if batch.num_rows else held
        last = [] if held is None or not held.num_rows else [column[-1].as_py() for column in held.columns]
        if held is None or last != [end] * len(self.names):
            raise ConfigError("FILE", self.file.path, "a quote is open at its end: it is cut off, or a quote is missing")
        if held.num_rows > 1:
            yield held.slice(0, held.num_rows - 1)


class _RowTooLong(Exception):
    """A row of CSV does not fit into a block."""


class _WithLastRow(io.RawIOBase):
    """A text with one row more. It comes back as a row unless a quote is open at the text's end."""

    def __init__(self, opened: Any, row: bytes) -> None:
        self._opened = opened
        self._row = row + b"\n"
        """What is left of the last row."""
        self._last = b"\n"
        self._has_ended = False
        self._held = b""
        """What the last call kept back."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """``size`` bytes unless the text ends before: Arrow takes what one call returns for a block.

        A return goes into the next block: Arrow drops the line feed that a block begins with if the one before ends with a
        return, in quotes, too.
        """
        found, self._held = self._held, b""
        while len(found) < size and not self._has_ended:
            more = cast("bytes", self._opened.read(size - len(found)))
            if more:
                self._last = more[-1:]
            else:
                self._has_ended = True
                self._row = self._row if self._last in b"\r\n" else b"\n" + self._row
            found += more
        rest = size - len(found)
        found, self._row = found + self._row[:rest], self._row[rest:]
        if found.endswith(b"\r") and len(found) > 1:
            found, self._held = found[:-1], b"\r"
        return found


def _header(opened: Any, delimiter: str) -> tuple[list[str], int]:
    """The names of the columns, and how many empty lines are before them."""
    checked = CheckedQuotes(opened, delimiter)
    text = io.TextIOWrapper(cast("Any", _Buffered(checked)), "utf-8-sig", "surrogateescape", newline="")
    read: list[str] = []
    lines = (read.append(line) or line for line in text)  # type: ignore[func-returns-value]
    for skipped, names in enumerate(python_csv.reader(lines, delimiter=delimiter)):
        if names:
            _refuse_no_text(names)
            if len(names) == 1 and not read[skipped].startswith('"'):
                _refuse_other_delimiter(names[0])
            return names, skipped
    raise ValueError("it is empty: its first row must name the columns")


def _refuse_other_delimiter(name: str) -> None:
    found = next((one for one in OTHER_DELIMITERS if one in name), None)
    if found is not None:
        remedy = f"{other_delimiter(found)}; a column that is called so is to be in quotes"
        raise ValueError(f"its first row names one column, {name[:MAX_SHOWN]!r}: {remedy}")


def _refuse_no_text(names: list[str]) -> None:
    for name in names:
        raw = name.encode("utf-8", "surrogateescape")
        if raw.decode("utf-8", "replace") != name:
            raise ValueError(f"the name {raw[:MAX_SHOWN]!r} in its first row is not UTF-8: convert it to UTF-8 first")


class _Buffered(io.BufferedReader):
    def __init__(self, opened: Any) -> None:
        super().__init__(_Raw(opened))


class _Raw(io.RawIOBase):
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._opened.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _skipped(batches: Any, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows >= batch.num_rows:
            rows -= batch.num_rows
            continue
        yield batch.slice(rows)
        rows = 0


def _with_nulls(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """An empty text in quotes, as some programs write a missing number, is null where it can be nothing else."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return texts
    return pc.if_else(pc.equal(texts, ""), None, texts)
