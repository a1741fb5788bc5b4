"""Key columns of every type, with few values each, so that keys meet again; some differ in what one can overlook."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

_MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1)

VALUES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "boolean": (pa.bool_(), (True, False)),
    "tiny": (pa.int8(), (0, 1, -1, 127, -128)),
    "whole": (pa.int64(), (0, 1, -1, 2**63 - 1, -(2**63), 2**32)),
    "date": (pa.date32(), (date(1970, 1, 1), date(1969, 12, 31), date(9999, 12, 31))),
    "timestamp": (pa.timestamp("us", "UTC"), (datetime(1970, 1, 1, tzinfo=UTC), _MOMENT.replace(tzinfo=UTC))),
    "timestamp_ntz": (pa.timestamp("us"), (datetime(1969, 12, 31, 23, 59), _MOMENT)),
    "string": (pa.string(), ("", "a", "a ", "a  ", " a", "A", "\0", "a\0", "ä", "a" * 300, "a" * 299 + "b", "𝄞")),
    "binary": (pa.binary(), (b"", b"\0", b"\0\0", b"\xff", b"a", b"a ", b"\xff" * 400)),
    "float": (pa.float32(), (0.0, -0.0, math.nan, 1.5, math.inf, -math.inf, 2.0**-149)),
    "double": (pa.float64(), (0.0, -0.0, math.nan, -math.nan, 0.1, 1e300, -math.inf)),
    "decimal": (pa.decimal128(10, 2), (Decimal("0"), Decimal("1.00"), Decimal("1.50"), Decimal("-0.01"))),
    "wide decimal": (pa.decimal128(38, 0), (Decimal(0), Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(2**64))),
}


@dataclass(frozen=True)
class KeyColumn:
    """One column of a key."""

    name: str
    kind: str
    nulls: float
    """The share of nulls."""

    @property
    def type(self) -> pa.DataType:
        return VALUES[self.kind][0]

    def drawn(self, chance: random.Random) -> Any:
        return None if chance.random() < self.nulls else chance.choice(VALUES[self.kind][1])


def drawn_key(chance: random.Random) -> tuple[KeyColumn, ...]:
    count = chance.choice((1, 1, 1, 2, 2, 3))
    kinds = (chance.choice(tuple(VALUES)) for _ in range(count))
    return tuple(KeyColumn(f"k{place}", kind, chance.choice((0.0, 0.1, 0.5))) for place, kind in enumerate(kinds))


def same_key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One form of all equal keys, as the entry of a dictionary."""
    return tuple(map(_same, values))


def _same(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value  # -0.0 is 0.0 to a dictionary, too
