"""What the readers of all formats share: bounds, and errors that name the file and the column."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.commands.row_files.named_file import NamedFile
from bk_spark.errors import ConfigError
from bk_spark.rows.arrow_types import MAX_LEVELS

BLOCK_BYTES = 4 << 20
"""Of text that is read at once: large enough that Arrow's calls do not count, small beside a client's window of 16 MiB."""
MAX_ROW_BYTES = 256 << 20
"""Of one row of text; a log's rows take at most 255 MiB."""

TOO_DEEP = f"is nested too deeply: a log's types have at most {MAX_LEVELS} levels"

_PROBLEMS = (pa.ArrowException, OSError, EOFError, ValueError, csv.Error)


@contextmanager
def reading(file: NamedFile) -> Iterator[None]:
    """Errors of reading become ConfigErrors that name the file."""
    try:
        yield
    except BadValue as bad:
        keeps = f"; '--types {bad.column}:string' keeps texts as they are" if file.is_text and "." not in bad.column else ""
        raise ConfigError("FILE", file.path, f"{bad}{keeps}") from None
    except _PROBLEMS as problem:
        raise file.unreadable(problem) from None


@contextmanager
def in_column(name: str) -> Iterator[None]:
    """A value that cannot be taken is one of this column."""
    try:
        yield
    except BadValue as bad:
        raise bad.within(name) from None
    except RecursionError:
        raise ValueError(f"column '{name}' {TOO_DEEP}") from None
