"""How commands print: tables for people, one JSON value a line for scripts."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from bk_spark.commands.program.process import give_up

Record = Mapping[str, object]

_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that a terminal obeys, does not show, or cannot be sent."""


class OutputError(Exception):
    """What a command prints cannot be written. ``problem`` says why. What it was to change, it has changed before."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def writing_output() -> Iterator[None]:
    """Failures of writing to stdout become OutputErrors: a command makes those of other files its own."""
    try:
        yield
    except OSError as problem:
        raise OutputError(problem) from None


def print_line(line: str = "") -> None:
    """A line of results on stdout."""
    with writing_output():
        print(line)


def flush_output() -> None:
    with writing_output():
        sys.stdout.flush()


def printable(text: str) -> str:
    """The text, with escapes for what a terminal would obey or not show, such as ``\\x1b`` and ``\\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(one) if unicodedata.category(one) in _ESCAPED else one for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def print_records(records: Iterable[Record], columns: Sequence[str], *, as_json: bool) -> None:
    """Print records of one kind: as a table of the named columns, or as JSON lines with all fields."""
    print_pages([records], columns, as_json=as_json)


def print_pages(pages: Iterable[Iterable[Record]], columns: Sequence[str], *, as_json: bool) -> None:
    """As ``print_records``, for any number of records.

    Each page is printed before the next one is asked for. A page with longer values widens the columns from there on.
    """
    rows = [[column.upper() for column in columns]]
    widths = [len(column) for column in columns]
    for page in pages:
        if as_json:
            for record in page:
                print_json(record)
            continue
        rows += [[_text(record.get(column, "")) for column in columns] for record in page]
        widths = [max([width, *(len(row[at]) for row in rows)]) for at, width in enumerate(widths)]
        _print_rows(rows, widths)
        rows = []
    if rows and not as_json:
        _print_rows(rows, widths)


def print_record(record: Record, *, as_json: bool) -> None:
    """Print one thing with all its fields, a line each or as one JSON object. Flushes, because servers print and go on."""
    if as_json:
        print_json(record)
    else:
        width = max(len(name) for name in record)
        for name, value in record.items():
            print_line(f"{name.ljust(width)}  {_text(value)}")
    flush_output()


def print_json(record: Record) -> None:
    print_line(json.dumps(record, default=str))


def say(message: str) -> None:
    """A message to a person: on stderr, apart from what a script reads. Lost if nobody reads stderr."""
    tell(f"{message}\n")


def readable(size_bytes: int) -> str:
    """A number of bytes with a unit, such as ``1.5 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


class ProgressBar:
    """Shows the progress of long work: one line on stderr, drawn over itself, and only if stderr is a terminal."""

    def __init__(self, redraw_s: float = 0.1, *, beside_output: bool = False) -> None:
        """``beside_output``: the work prints results meanwhile, so draw nothing if stdout is a terminal too."""
        self._redraw_s = redraw_s
        self._next_s = 0.0
        self._width = 0
        self._is_on = sys.stderr.isatty() and not (beside_output and sys.stdout.isatty())

    def show(self, what: str, done: int, total: int) -> None:
        """Draw ``done`` of ``total``, unless the last drawing is less than ``redraw_s`` old. ``total`` may grow."""
        if self._is_due():
            filled = 30 * min(done, total) // max(total, 1)
            self._draw(f"{what}  [{'#' * filled}{'.' * (30 - filled)}]  {done} of {total}")

    def count(self, what: str, done: int) -> None:
        """As ``show``, for work whose total is not known."""
        if self._is_due():
            self._draw(f"{what}  {done} so far")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._width:
            self._draw("")
            tell("\r")

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if not self._is_on or now_s < self._next_s:
            return False
        self._next_s = now_s + self._redraw_s
        return True

    def _draw(self, line: str) -> None:
        tell("\r" + line.ljust(self._width))
        self._width = max(self._width, len(line))


def _print_rows(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
    for row in rows:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def tell(text: str) -> None:
    """Text on stderr, as it is. Lost if nobody reads stderr."""
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError:
        give_up(sys.stderr)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return "-" if value is None else printable(str(value))
