"""Conditions for option ``where``, each as a text and as a function of a row that gives what SQL does: true, false, or null."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.soak.latest.keys import VALUES, KeyColumn

Row: TypeAlias = dict[str, Any]
Holds: TypeAlias = Callable[[Row], bool | None]


@dataclass(frozen=True)
class Where:
    text: str
    holds: Holds


def drawn_where(chance: random.Random, key: tuple[KeyColumn, ...], depth: int = 2) -> Where:
    if depth and chance.random() < 0.6:
        parts = [drawn_where(chance, key, depth - 1) for _ in range(chance.choice((2, 2, 3)))]
        return _both(parts) if chance.random() < 0.6 else _either(parts)
    return _of_key(chance, chance.choice(key)) if chance.random() < 0.5 else _of_value(chance)


def _both(parts: list[Where]) -> Where:
    return Where(" AND ".join(f"({one.text})" for one in parts), lambda row: all(one.holds(row) is True for one in parts))


def _either(parts: list[Where]) -> Where:
    return Where(" OR ".join(f"({one.text})" for one in parts), lambda row: any(one.holds(row) is True for one in parts))


def _of_value(chance: random.Random) -> Where:
    number, text = chance.randrange(10), chance.choice(("x", "y", "zz"))
    return chance.choice(
        (
            Where(f"amount > {number}", lambda row: row["amount"] is not None and row["amount"] > number),
            Where(f"amount <= {number}", lambda row: row["amount"] is not None and row["amount"] <= number),
            Where("amount IS NULL", lambda row: row["amount"] is None),
            Where("gone = true", lambda row: row["gone"] is True),
            Where(f"note = '{text}'", lambda row: row["note"] == text),
            Where(f"n >= {number * 20}", lambda row: row["n"] >= number * 20),
        )
    )


def _of_key(chance: random.Random, column: KeyColumn) -> Where:
    name = column.name
    if chance.random() < 0.3:
        return Where(f"{name} IS NULL", lambda row: row[name] is None)
    value = chance.choice(VALUES[column.kind][1])
    spelt = literal(column.kind, value)
    if spelt is None:
        return Where(f"{name} IS NOT NULL", lambda row: row[name] is not None)
    if chance.random() < 0.5:
        return Where(f"{name} = {spelt}", lambda row: row[name] is not None and equal(row[name], value))
    others = chance.sample(VALUES[column.kind][1], 2)
    if any(literal(column.kind, one) is None for one in others):
        return Where(f"{name} IS NOT NULL", lambda row: row[name] is not None)
    texts = ", ".join(str(literal(column.kind, one)) for one in others)
    return Where(f"{name} IN ({texts})", lambda row: row[name] is not None and any(equal(row[name], one) for one in others))


def literal(kind: str, value: Any) -> str | None:
    """As SQL has it; None where a condition cannot say it."""
    if kind in ("boolean", "tiny", "whole"):
        return str(value).lower()
    if kind == "date":
        return f"DATE '{value}'"
    if kind == "timestamp":
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}Z'"
    if kind == "timestamp_ntz":
        return f"TIMESTAMP_NTZ '{value:%Y-%m-%d %H:%M:%S.%f}'"
    if kind == "string":
        return f"'{value}'"
    if kind in ("decimal", "wide decimal"):
        return str(value)
    return f"X'{value.hex()}'" if kind == "binary" else _of_float(value)


def _of_float(value: float) -> str | None:
    return None if not math.isfinite(value) or "e" in repr(value) else repr(value)


def equal(one: Any, other: Any) -> bool:
    """As Spark: NaN equals itself."""
    return bool(one == other or (one != one and other != other))
