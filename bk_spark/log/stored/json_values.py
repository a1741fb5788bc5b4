"""How a log's values are written: JSON objects with sorted keys and a ``format``.

A value with a newer format is refused by name. Anything else that cannot be understood is damage. Neither is ever skipped.
``integer``, ``text`` and the other checks below raise ValueError, which ``decode`` reports as damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError

FORMAT = 2
"""Of every value that says nothing of lanes or tiers. A program that knows only lower formats than a value has refuses it."""
FORMAT_OF_LANES = 3
"""Of one that says something of lanes: other programs would read and write without them."""
FORMAT_OF_TIERS = 4
"""Of one that says something of a tier: other programs would miss rows that bookies do not have any more."""
FORMAT_OF_KEYS = 5
"""Of one that says something of a compaction by key: other programs would count row numbers that no row has any more."""
FORMAT_OF_SECRETS = 6
"""Of the head of a secured log: other programs would write ledgers for it that anybody reads who reaches a bookie."""
FORMAT_OF_READERS = 7
"""Of the head of a log that identities read directly: other programs would make what these cannot read."""

MAX_INTEGER = 2**63 - 1

_Record = TypeVar("_Record")


def encode(form: int = FORMAT, **record: object) -> bytes:
    """``form``: the record's format."""
    return json.dumps({"format": form, **record}, sort_keys=True, separators=(",", ":")).encode()


def decode(what: str, value: bytes, build: Callable[[dict[str, Any]], _Record]) -> _Record:
    """What ``build`` makes of the object. ``what`` names the value in an error. Raises CorruptionError, FormatVersionError."""
    try:
        record = json.loads(value, parse_constant=_refuse_constant)
        found = record["format"]
        if type(found) is not int or found < FORMAT:
            raise CorruptionError(what, f"its format version is {found!r}")
        if found > FORMAT_OF_READERS:
            raise FormatVersionError(what, found, FORMAT_OF_READERS)
        return build(record)
    except (ValueError, KeyError, TypeError, IndexError, ConfigError) as problem:
        raise CorruptionError(what, f"{type(problem).__name__}: {problem}") from None
    except RecursionError:
        raise CorruptionError(what, "it is nested too deeply") from None


def integer(value: object, least: int = -MAX_INTEGER, most: int = MAX_INTEGER) -> int:
    """A whole number; not true, not 1.0."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{_shortened(value)} is no whole number from {least} to {most}")
    return value


def check_integer(what: str, value: object, least: int) -> None:
    """Raises ConfigError."""
    if type(value) is not int or not least <= value <= MAX_INTEGER:
        raise ConfigError(what, value, f"it must be an integer from {least} to 2^63 - 1")


def integers(values: object) -> list[int]:
    return [integer(value) for value in items(values)]


def text(value: object) -> str:
    """Text that can be encoded again: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise ValueError(f"{_shortened(value)} is no text")
    value.encode()
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shortened(value)} is neither true nor false")
    return value


def items(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shortened(value)} is no list")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _shortened(value: object) -> str:
    return repr(value)[:100]
