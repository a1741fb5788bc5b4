"""Reads JSON lines: one object in each line."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa

from bk_spark.commands.row_files import json_values
from bk_spark.commands.row_files.guessed_types import checked_name, json_type, merged_type
from bk_spark.commands.row_files.named_file import NamedFile
from bk_spark.commands.row_files.reading import BLOCK_BYTES, MAX_ROW_BYTES, in_column, reading, string_remedy
from bk_spark.errors import ConfigError
from bk_spark.rows.arrow_types import is_too_deep

Types = Mapping[str, pa.DataType]


class JsonSource:
    """One object in each line."""

    def __init__(self, file: NamedFile, fixed: Container[str] = ()) -> None:
        """``fixed``: the columns whose types are those of the log, or of files with types."""
        self.file = file
        self._fixed = fixed

    def look(self, known: Types) -> Iterator[tuple[int, dict[str, pa.DataType]]]:
        """The columns of all rows, those of ``known`` with its types; yields numbers of rows with what is known so far."""
        found: dict[str, pa.DataType] = {}
        for rows in self._rows():
            with reading(self.file):
                for name in dict.fromkeys(itertools.chain(found, *rows)):
                    values = [row.get(name) for row in rows]
                    with in_column(name, partial(self._remedy, name, values)):
                        kind = json_type(values, known.get(checked_name(name)))
                        if is_too_deep(kind):
                            raise RecursionError
                    merged = merged_type(found.get(name, pa.null()), kind)
                    if merged is None:
                        problem = (
                            f"column '{name}' holds {found[name]} in some lines and {kind} in others: give its type (--types)"
                        )
                        raise ConfigError("FILE", self.file.path, problem)
                    found[name] = merged
            yield len(rows), found

    def batches(self, types: Types, asked: Types) -> Iterator[pa.RecordBatch]:
        """Columns of ``asked`` that are strings take numbers, too, with the digits that they have."""
        for rows in self._rows():
            with reading(self.file):
                columns = []
                for name, kind in types.items():
                    values = [row.get(name) for row in rows]
                    if name in asked and pa.types.is_string(kind):
                        values = list(map(_as_text, values))
                    with in_column(name, partial(self._remedy, name, values)):
                        columns.append(json_values.column(values, kind))
            yield pa.RecordBatch.from_arrays(columns, names=list(types)) if columns else pa.RecordBatch.from_pylist([])

    def _remedy(self, name: str, values: list[Any]) -> str:
        is_fixed = name in self._fixed
        return string_remedy(name, is_fixed=is_fixed) if is_fixed or all(map(_can_be_text, values)) else ""

    def _rows(self) -> Iterator[list[dict[str, Any]]]:
        number = 0
        with closing(self.file.open()) as opened:
            for lines in self._lines(opened):
                rows = []
                for line in lines:
                    number += 1
                    if line.strip():
                        rows.append(self._row(line, number))
                if rows:
                    yield rows
        self.file.check()

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json_values.loaded(line.decode("utf-8-sig" if number == 1 else "utf-8").strip())
        except (ValueError, RecursionError) as problem:
            hint = "; an array of objects must be lines first, such as by jq -c '.[]'" if line.lstrip()[:1] == b"[" else ""
            hint = ": convert it to UTF-8 first" if isinstance(problem, UnicodeDecodeError) else hint
            raise self.file.unreadable(ValueError(f"line {number}: {problem}{hint}")) from None
        if not isinstance(row, dict):
            hint = "jq -c '.[]' makes lines of an array" if isinstance(row, list) else "each line is one object"
            raise ConfigError("FILE", self.file.path, f"it cannot be read as json: line {number} is no object: {hint}")
        return row

    def _lines(self, opened: Any) -> Iterator[list[bytes]]:
        rest = b""
        while True:
            with reading(self.file):
                block = opened.read(BLOCK_BYTES)
            if not block:
                break
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_ROW_BYTES:
                problem = f"a line has more than {MAX_ROW_BYTES} bytes: write one object a line"
                raise ConfigError("FILE", self.file.path, problem)
            yield lines
        if rest:
            yield [rest]


def _can_be_text(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return False
    try:
        str(value).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return json_values.dumped(value)
    return str(value) if isinstance(value, (int, json_values.Number)) else value
