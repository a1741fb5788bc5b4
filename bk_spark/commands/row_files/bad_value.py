"""A value in a file that cannot be taken as it is."""

from __future__ import annotations

MAX_SHOWN = 80
"""Characters of a value that an error repeats."""


class BadValue(Exception):
    """``why`` completes the sentence "its value … …"; ``column`` and ``remedy`` are known behind the column."""

    def __init__(self, value: object, why: str, column: str = "") -> None:
        super().__init__(value, why)
        self.value = value
        self.why = why
        self.column = column
        self.remedy = ""

    def within(self, column: str) -> BadValue:
        """The same, of a field inside of ``column``."""
        return BadValue(self.value, self.why, f"{column}.{self.column}" if self.column else column)

    def __str__(self) -> str:
        shown = repr(self.value)
        cut = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
        return f"the value {cut} of column '{self.column}' {self.why}"
