"""What the readers of all formats share: bounds, and errors that name the file and the column."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
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
        told = f"{bad}; {bad.remedy}" if bad.remedy else str(bad)
        raise ConfigError("FILE", file.path, told) from None
    except _PROBLEMS as problem:
        raise file.unreadable(problem) from None


@contextmanager
def in_column(name: str, remedy: Callable[[], str] = str) -> Iterator[None]:
    """A value that cannot be taken is one of this column; ``remedy`` says what to do."""
    try:
        yield
    except BadValue as bad:
        told = bad.within(name)
        told.remedy = remedy()
        raise told from None
    except RecursionError:
        raise ValueError(f"column '{name}' {TOO_DEEP}") from None


def string_remedy(name: str, *, is_fixed: bool) -> str:
    """What to do about a column of texts one of which does not fit. ``is_fixed``: no ``--types`` can change its type."""
    if is_fixed:
        return "the column's type is that of the log, or of a Parquet or Arrow file: correct the value"
    plain = name if re.fullmatch(r"[^\s:,<>`](?:[^:,<>`]*[^\s:,<>`])?", name) else f"`{name.replace('`', '``')}`"
    return f"'--types {plain}:string' keeps texts as they are"
