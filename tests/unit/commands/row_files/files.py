"""What ``log append`` makes of files, without a log to send it to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from bk_spark.commands.output import ProgressBar
from bk_spark.commands.row_files.append_files import AppendedFiles, read_files
from bk_spark.commands.row_files.named_file import named_files
from bk_spark.commands.row_files.type_names import column_types
from bk_spark.rows.conversion import Conversion


def stored(schema: pa.Schema | None) -> dict[str, Any] | None:
    return None if schema is None else json.loads(json.dumps(Conversion("log", schema).schema))


def appended(
    *paths: Path, log: pa.Schema | None = None, types: str = "", nulls: tuple[str, ...] = (), merge: bool = False
) -> pa.Table:
    """The rows that an append of these files to a log with this schema would send."""
    files = named_files([str(path) for path in paths], None)
    call = AppendedFiles("log", stored(log), files, column_types(types) if types else {}, nulls, merge)
    return read_files(call, ProgressBar()).read_all()


class Folder:
    """Writes small files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, name: str, data: str | bytes) -> Path:
        path = self.path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path
