"""Sizes in bytes, as users write them."""

from __future__ import annotations

import re
from collections.abc import Callable

from bk_spark.config import KIB, MIB
from bk_spark.errors import ConfigError

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_BINARY_UNITS = {"": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}


def size(low: int, high: int) -> Callable[[str, str], int]:
    """Bytes, also as ``64m`` or ``1 GiB``; both bounds included."""

    def parse(name: str, value: str) -> int:
        match = _SIZE.fullmatch(value.strip())
        found = int(match[1]) * _BINARY_UNITS[match[2].lower()] if match and len(match[1]) < 20 else -1
        if not low <= found <= high:
            raise ConfigError(f"option '{name}'", value, f"it must be a size from {low} to {high} bytes, such as 65536 or 64m")
        return found

    return parse
