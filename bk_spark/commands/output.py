"""How commands print: tables for people, one JSON value a line for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

Record = Mapping[str, object]


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
            print(f"{name.ljust(width)}  {_text(value)}")
    sys.stdout.flush()


def print_json(record: Record) -> None:
    print(json.dumps(record, default=str))


def say(message: str) -> None:
    """A message to a person: on stderr, apart from what a script reads."""
    print(message, file=sys.stderr)


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
            print("\r", end="", file=sys.stderr, flush=True)

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if not self._is_on or now_s < self._next_s:
            return False
        self._next_s = now_s + self._redraw_s
        return True

    def _draw(self, line: str) -> None:
        print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = max(self._width, len(line))


def _print_rows(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return "-" if value is None else str(value)
