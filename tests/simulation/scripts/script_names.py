"""How scripts name messages and entries."""

from __future__ import annotations

import re

from bk_spark.entries.batch import NO_ENTRY


class ScriptError(AssertionError):
    """A step cannot be done, or an expectation does not hold. The trace up to there follows the message."""


def parts_of(what: str) -> tuple[str, str, str]:
    """Source, word and target of a message's name."""
    left, target = re.split(r" <?-> ", what)
    source, _, word = left.partition(" ")
    return source, word or "*", target


def each_of(source: str, word: str, target: str) -> list[str]:
    return [f"{one} {word} -> {other}" for one in source.split(",") for other in target.split(",")]


def entry_of(text: str) -> int:
    return NO_ENTRY if text == "nothing" else int(text)
