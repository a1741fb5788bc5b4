r"""Patterns of LIKE, as Spark evaluates them.

``%`` stands for any text and ``_`` for one character; behind the escape character, ``\`` unless another is named, they and the
escape character stand for themselves. Spark compares the bytes of the forms ``abc%``, ``%abc`` and ``%abc%`` without escapes.
In the form ``abc%xyz`` it counts characters too. All other patterns it matches as a regular expression against decoded text, in
which each malformed part of a STRING that is not UTF-8 is one U+FFFD.

Ref: Spark's LikeSimplification and StringUtils.escapeLikeRegex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.rows.statistics import ColumnStatistics
from bk_spark.rows.where.tree import Literal, UnfitLiteral

MAX_PATTERN = 1000
"""Characters of a pattern: its regular expression is compiled for each batch of rows."""

_FORMS = re.compile(r"(?P<start>[^_%]+)%+(?P<end>[^_%]+)?|%+(?P<last>[^_%]+)|%+(?P<inner>[^_%]+)%+")
_REPLACEMENT = "\ufffd"
_ANY, _ONE = "%", "_"

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Java decodes it to one U+FFFD, Python to one for each byte."""

_COUNTED = re.compile(rb"[\xc2-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xf4].{0,3}|.", re.DOTALL)
"""What Spark counts as a character: the first byte says how many follow, whatever they are."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: what text starts with, ends with and has inside, or a regular expression that is to match all of it."""

    start: str = ""
    end: str = ""
    inner: str = ""
    expression: str = ""

    def mask(self, column: pa.Array) -> pa.Array:
        """True for each STRING that matches, false for others, null for null."""
        if self.expression:
            return pc.match_substring_regex(_text(column), self.expression)
        values, found = column.cast(pa.binary()), []
        if self.start:
            found.append(pc.starts_with(values, self.start.encode()))
        if self.end:
            found.append(pc.ends_with(values, self.end.encode()))
        if self.inner:
            found.append(pc.match_substring(values, self.inner.encode()))
        if self.start and self.end:  # which may overlap in shorter text
            found.append(pc.greater_equal(_lengths(column), len(self.start) + len(self.end)))
        return reduce(pc.and_, found)

    def may_match(self, known: ColumnStatistics) -> bool:
        """Whether a value between the bounds can match."""
        first, last = self._starts(known)
        return first <= self.start.encode() <= last

    def may_differ(self, known: ColumnStatistics) -> bool:
        """Whether a value between the bounds can fail to match: not where all begin as ``abc%`` says."""
        only_starts = bool(self.start) and not self.end and not self.expression
        first, last = self._starts(known)
        return not (only_starts and first == self.start.encode() == last)

    def _starts(self, known: ColumnStatistics) -> tuple[bytes, bytes]:
        """As many bytes of the bounds as ``start`` has; bounds that allow all where there are none."""
        size = len(self.start.encode())
        if isinstance(known.low, bytes) and isinstance(known.high, bytes):
            return known.low[:size], known.high[:size]
        return b"", b"\xff"


def pattern_of(literals: tuple[Literal, ...]) -> Pattern | str:
    """The pattern that LIKE's literals, the second of which is the escape character, make; the text itself where it is fixed.

    Raises UnfitLiteral.
    """
    text, escape = _checked(literals)
    if escape not in text:
        if not set(text) & {_ANY, _ONE}:
            return text
        if form := _FORMS.fullmatch(text):
            return Pattern(form["start"] or "", form["end"] or form["last"] or "", form["inner"] or "")
    parts = list(_parts(text, escape))
    expression = "".join({_ANY: ".*", _ONE: "."}[part] if wild else re.escape(part) for wild, part in parts)
    return Pattern(_fixed_start(parts), expression=rf"(?s)\A{expression}\z")


def _checked(literals: tuple[Literal, ...]) -> tuple[str, str]:
    text, escape = literals if len(literals) == 2 else (literals[0], "\\")
    if not isinstance(text, str):
        raise UnfitLiteral("LIKE takes a pattern in quotes such as 'abc%'")
    if not isinstance(escape, str) or len(escape) != 1 or escape > "\uffff":
        raise UnfitLiteral("ESCAPE takes one character in quotes, up to U+FFFF")
    if len(text) > MAX_PATTERN:
        raise UnfitLiteral(f"a pattern has {MAX_PATTERN} characters at most")
    return text, escape


def _parts(text: str, escape: str) -> Iterator[tuple[bool, str]]:
    """The characters of a pattern, and whether each is a wildcard. Raises UnfitLiteral."""
    characters = iter(text)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in (_ANY, _ONE, escape):
                raise UnfitLiteral(f"in a pattern {escape} stands before %, _ or {escape}: write {escape}{escape} for itself")
            yield False, following
        else:
            yield character in (_ANY, _ONE), character


def _fixed_start(parts: list[tuple[bool, str]]) -> str:
    """What all text that matches starts with. U+FFFD may stand for bytes that are no text."""
    fixed = ""
    for wild, character in parts:
        if wild or character == _REPLACEMENT:
            break
        fixed += character
    return fixed


def _text(column: pa.Array) -> pa.Array:
    """The STRINGs as text; what is not UTF-8 is decoded as Java does it."""
    if _is_text(column):
        return column
    decoded = [None if value is None else _decoded(value) for value in column.cast(pa.binary()).to_pylist()]
    return pa.array(decoded, pa.string())


def _lengths(column: pa.Array) -> pa.Array:
    """How many characters Spark counts in each STRING."""
    if _is_text(column):
        return pc.utf8_length(column)
    counted = [None if value is None else len(_COUNTED.findall(value)) for value in column.cast(pa.binary()).to_pylist()]
    return pa.array(counted, pa.int32())


def _is_text(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(value: bytes) -> str:
    return _SURROGATE.sub(_REPLACEMENT.encode(), value).decode(errors="replace")
