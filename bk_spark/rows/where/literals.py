"""Converts literals of option ``where`` to a column's type, in the form in which statistics.py compares values.

The conversion is exact. Integers, dates, times and decimals have a smallest step. A literal between two steps, or beyond the
type's range, becomes a comparison with a step, or one that holds for every value or for none. ``numbers.py`` says which
number is compared.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, tzinfo
from decimal import ROUND_FLOOR, Context, Decimal

import pyarrow as pa

from bk_spark.rows.local_time import NO_ZONE, microseconds
from bk_spark.rows.statistics import Key, Kind, kind_of
from bk_spark.rows.where.numbers import compared_numbers
from bk_spark.rows.where.tree import Literal, Operator, TypedText, UnfitLiteral

_EXACT = Context(prec=200)
_HUGE = Decimal(10) ** 80
"""Beyond every value of every type, and small enough to compute with, unlike the literal 1e300."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
_SPECIAL_FLOATS = ("nan", "infinity", "+infinity", "-infinity", "inf", "+inf", "-inf")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")
_TIMESTAMP = re.compile(rf"{_DATE.pattern}([ T]{_TIME.pattern}(Z|[+-]\d\d:\d\d)?)?")
_ZONED_KINDS = ("", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
_PLAIN_KINDS = ("", "DATE", "TIMESTAMP_NTZ")

_NEVER: tuple[Operator, tuple[Key, ...]] = (Operator.IN, ())
_ANY_VALUE: tuple[Operator, tuple[Key, ...]] = (Operator.IS_NOT_NULL, ())


def bound_literals(
    of: pa.DataType, operator: Operator, literals: tuple[Literal, ...], zone: tzinfo | None = None
) -> tuple[Operator, tuple[Key, ...]]:
    """The operator and its keys, for a column of type ``of``. Raises UnfitLiteral.

    IN without keys holds for no row, NOT IN without keys for every row that has a value.

    ``zone`` is that of times without an offset; None refuses them.
    """
    kind = kind_of(of)
    if kind is Kind.FLOAT:
        return operator, tuple(_float(literal) for literal in literals)
    if kind is Kind.BYTES:
        return operator, tuple(_text(literal) if pa.types.is_string(of) else _binary(literal) for literal in literals)
    low, high = _range(of)
    steps = _steps(of, operator, literals, zone)
    if operator in (Operator.IN, Operator.NOT_IN):
        return operator, tuple(key for step in steps for key in _whole(Operator.EQUAL, step, low, high)[1])
    return _whole(operator, steps[0], low, high)


def _whole(operator: Operator, value: Decimal, low: int, high: int) -> tuple[Operator, tuple[Key, ...]]:
    """The same comparison with an integer key. All values of the column are integers from ``low`` to ``high``."""
    value = max(-_HUGE, min(_HUGE, value))
    floor = int(value.to_integral_value(ROUND_FLOOR, _EXACT))
    between = floor != value or not low <= floor <= high
    if between and operator in (Operator.EQUAL, Operator.NOT_EQUAL):
        return _NEVER if operator is Operator.EQUAL else _ANY_VALUE
    if not low <= floor <= high:
        return _ANY_VALUE if (operator in (Operator.LESS, Operator.AT_MOST)) == (floor > high) else _NEVER
    if between:
        operator = Operator.AT_MOST if operator in (Operator.LESS, Operator.AT_MOST) else Operator.MORE
    return operator, (floor,)


def _range(of: pa.DataType) -> tuple[int, int]:
    if pa.types.is_boolean(of):
        return 0, 1
    if pa.types.is_decimal128(of):
        return 1 - 10**of.precision, 10**of.precision - 1
    return -(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1) - 1


def _steps(of: pa.DataType, operator: Operator, literals: tuple[Literal, ...], zone: tzinfo | None) -> list[Decimal]:
    """The literals in smallest steps of the type."""
    if pa.types.is_boolean(of):
        return [_boolean(literal) for literal in literals]
    if pa.types.is_date32(of):
        return [Decimal(_date(literal)) for literal in literals]
    if pa.types.is_timestamp(of):
        convert = _instant if of.tz is not None else _plain_time
        return [Decimal(convert(literal, zone)) for literal in literals]
    if pa.types.is_time64(of):
        return [Decimal(_time(literal)) for literal in literals]
    numbers = compared_numbers(of, operator, literals)
    scale = of.scale if pa.types.is_decimal128(of) else 0
    return [max(-_HUGE, min(_HUGE, number)).scaleb(scale, _EXACT) for number in numbers]


def _boolean(literal: Literal) -> Decimal:
    value = {"true": True, "false": False}.get(literal.lower()) if isinstance(literal, str) else literal
    if not isinstance(value, bool):
        raise UnfitLiteral("it must be true or false")
    return Decimal(int(value))


def _float(literal: Literal) -> float:
    if isinstance(literal, str):
        text = literal.strip()
        if text.lower() not in _SPECIAL_FLOATS and not _NUMBER.fullmatch(text):
            raise UnfitLiteral("it must be a number such as 5 or -1.5, or 'NaN', 'Infinity', '-Infinity'")
        return float(text)
    if not isinstance(literal, Decimal | float):
        raise UnfitLiteral("it must be a number such as 5 or -1.5")
    return float(literal)


def _text(literal: Literal) -> bytes:
    if not isinstance(literal, str):
        raise UnfitLiteral("it must be a string in quotes")
    return literal.encode()


def _binary(literal: Literal) -> bytes:
    try:
        return bytes.fromhex(_spelt(literal, ("X",)))
    except ValueError:
        raise UnfitLiteral("it must be bytes such as X'00FF'") from None


def _date(literal: Literal) -> int:
    """Days since 1970."""
    try:
        return (date.fromisoformat(_matching(_DATE, _spelt(literal, ("", "DATE")))) - date(1970, 1, 1)).days
    except ValueError:
        raise UnfitLiteral("it must be a date such as '2026-01-31'") from None


def _instant(literal: Literal, zone: tzinfo | None) -> int:
    """Microseconds since 1970 in UTC."""
    moment = _moment(literal, _ZONED_KINDS)
    if moment.tzinfo is None and zone is None:
        raise UnfitLiteral(NO_ZONE)
    return microseconds(moment, zone or UTC)


def _plain_time(literal: Literal, _: tzinfo | None) -> int:
    """Microseconds since 1970 on the clock that the column's values show."""
    if isinstance(literal, TypedText) and literal.kind in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        raise UnfitLiteral("it must be a time without a zone: write it in quotes alone, or as TIMESTAMP_NTZ '…'")
    moment = _moment(literal, _PLAIN_KINDS)
    if moment.tzinfo:
        raise UnfitLiteral("it must be a time without an offset, as the column's are")
    return microseconds(moment, UTC)


def _moment(literal: Literal, kinds: tuple[str, ...]) -> datetime:
    try:
        return datetime.fromisoformat(_matching(_TIMESTAMP, _spelt(literal, kinds)))
    except ValueError:
        raise UnfitLiteral("it must be a time such as '2026-01-31 23:59:59' or '2026-01-31T23:59:59.5+01:00'") from None


def _time(literal: Literal) -> int:
    """Nanoseconds since midnight."""
    try:
        at = time.fromisoformat(_matching(_TIME, _spelt(literal, ("", "TIME"))))
    except ValueError:
        raise UnfitLiteral("it must be a time of the day such as '23:59:59'") from None
    return (((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond) * 1000


def _spelt(literal: Literal, kinds: tuple[str, ...]) -> str:
    """The text of a literal of one of ``kinds``, where "" is a plain string. Raises ValueError for other literals."""
    if isinstance(literal, TypedText) and literal.kind in kinds:
        return literal.text.strip()
    if isinstance(literal, str) and "" in kinds:
        return literal.strip()
    raise ValueError


def _matching(pattern: re.Pattern[str], text: str) -> str:
    """``text`` if it matches. Raises ValueError for formats that Python's ISO parsers accept and Spark does not."""
    if not pattern.fullmatch(text):
        raise ValueError
    return text
