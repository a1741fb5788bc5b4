"""How a log's values are written: JSON objects with sorted keys and a ``format``.

A newer format is refused by name, anything else that is not understood is damage: neither is ever skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError

FORMAT = 2

_Record = TypeVar("_Record")


def encode(**record: object) -> bytes:
    return json.dumps({"format": FORMAT, **record}, sort_keys=True, separators=(",", ":")).encode()


def decode(what: str, value: bytes, build: Callable[[dict[str, Any]], _Record]) -> _Record:
    """What ``build`` makes of the object. ``what`` names the value in an error."""
    try:
        record = json.loads(value)
        found = record["format"]
        if type(found) is not int or found < FORMAT:
            raise CorruptionError(what, f"its format version is {found!r}")
        if found > FORMAT:
            raise FormatVersionError(what, found, FORMAT)
        return build(record)
    except (ValueError, KeyError, TypeError, IndexError, ConfigError) as problem:
        raise CorruptionError(what, f"{type(problem).__name__}: {problem}") from None
