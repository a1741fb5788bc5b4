"""Quotes of CSV where all readers agree on them: around whole values, and doubled inside of those (RFC 4180).

Elsewhere a quote means something else to each reader. A backslash escapes it for Spark and MySQL, others keep it, PostgreSQL
begins a quoted part with it, and Arrow drops it. Such a text is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bk_spark.commands.row_files.bad_value import MAX_SHOWN

OTHER_DELIMITERS = ";|\t,"
UTF8_MARK = b"\xef\xbb\xbf"
_QUOTE, _RETURN, _LINE_FEED = b'"\r\n'
_REMEDY = "a value with quotes is to be in quotes, and those inside of it doubled"


class CheckedQuotes:
    """The bytes of ``opened``. ``read`` raises ValueError for the first quote in a wrong place, with its row."""

    def __init__(self, opened: Any, delimiter: str) -> None:
        self._opened = opened
        self._delimiter = delimiter
        self._is_beside = np.zeros(256, np.bool_)
        """What may be before a quote that opens a value, and behind one that closes it; beside another quote it is doubled."""
        self._is_beside[list(f'{delimiter}"\r\n'.encode())] = True
        self._last = b""
        self._is_open = False
        self._rows = 0
        """Whose ends were read."""

    def read(self, size: int) -> bytes:
        block: bytes = self._opened.read(size)
        if block:
            self._see(block.removeprefix(UTF8_MARK) if not self._last else block)
        return block

    def _see(self, block: bytes) -> None:
        """The byte before the block stands at place 0: whether it closes a value rightly depends on the next."""
        data = np.frombuffer((self._last or b"\n") + block, np.uint8)
        quotes = np.flatnonzero(data[1:] == _QUOTE) + 1
        opening, closing = quotes[self._is_open :: 2], quotes[not self._is_open :: 2]
        if data[0] == _QUOTE and not self._is_open:
            closing = np.concatenate(([0], closing))
        wrong_openings = opening[~self._is_beside[data[opening - 1]]]
        closed = closing[closing + 1 < len(data)]
        wrong_closings = closed[~self._is_beside[data[closed + 1]]]
        if len(wrong_openings) or len(wrong_closings):
            place = min([*wrong_openings[:1], *wrong_closings[:1]])
            before = quotes[quotes < place]
            row = self._rows + self._ends(data[:place], before) + 1
            raise ValueError(self._sentence(data.tobytes(), int(place), row, place in wrong_openings[:1]))
        self._rows += self._ends(data, quotes)
        self._is_open ^= bool(len(quotes) % 2)
        self._last = block[-1:] or self._last

    def _ends(self, data: Any, quotes: Any) -> int:
        """How many rows, empty ones too, end behind place 0. A return and a line feed are one end."""
        ends = np.flatnonzero((data[1:] == _LINE_FEED) | (data[1:] == _RETURN)) + 1
        if len(quotes) or self._is_open:
            ends = ends[(np.searchsorted(quotes, ends) + self._is_open) % 2 == 0]
        return int(np.count_nonzero((data[ends] == _RETURN) | (data[ends - 1] != _RETURN)))

    def _sentence(self, data: bytes, place: int, row: int, is_opening: bool) -> str:
        begin = max(data.rfind(b"\n", 0, place) + 1, place - MAX_SHOWN // 2)
        shown = data[begin : begin + MAX_SHOWN].splitlines()[0].decode("utf-8", "replace")
        where = "a quote inside of a value without quotes" if is_opening else "text behind the quote that closes a value"
        behind = chr(data[place + 1]) if place + 1 < len(data) else ""
        remedy = _REMEDY
        if data[place - 1 : place] == b"\\":
            remedy += ", not escaped by a backslash (Spark writes so with option('escape', '\"'))"
        elif not is_opening and behind in OTHER_DELIMITERS:
            remedy = other_delimiter(behind)
        return f"row {row} has {where}: {shown!r}: {remedy}"


def other_delimiter(found: str) -> str:
    """The way out for a text whose values are perhaps separated by ``found``."""
    ways = {"\t": "read it with --format tsv, or name it .tsv", ",": "read it with --format csv, or name it .csv"}
    return f"if {found!r} separates its values, {ways.get(found, 'write it with commas, or with tabs as .tsv')}"
