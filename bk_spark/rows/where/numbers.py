"""Numbers of a condition, and a column of whole numbers or decimals: what is compared exactly to get Spark's answer.

Spark brings column and literals to one type first. Its rules, with ANSI mode on, as by default:

- A literal with an exponent is a DOUBLE, and the column is read as one. That rounds BIGINT, and decimals of many digits.
- Other literals are decimals as they are written: 1.50 is DECIMAL(3,2). The common type has room for both sides, up to 38
  digits. Where more would be needed, digits behind the point are given up, and values are rounded, half away from zero.
- A list of IN has one type for all its literals. There a whole number takes the room of an INT or BIGINT.
- A literal in quotes is a BIGINT where the column is one of whole numbers, and a DOUBLE where it is a decimal.

Worked example: DECIMAL(38,18) and 5.0000000000000000001 have 20 digits before the point and 19 behind it. Spark compares
DECIMAL(38,18), so the literal is 5. The literal can be rounded here; where Spark would round the column's values, the
comparison is refused.

Ref: Spark SQL, "ANSI Compliance"; its DecimalPrecisionTypeCoercion.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

from bk_spark.rows.where.tree import Literal, Operator, UnfitLiteral

MAX_DIGITS = 38
"""The most digits of Spark's decimals."""

_EXACT = Context(prec=200)
_WHOLE = re.compile(r"[+-]?\d{1,19}")
_EQUALITIES = (Operator.EQUAL, Operator.NOT_EQUAL)
_LISTS = (Operator.IN, Operator.NOT_IN)
_INT, _BIGINT = range(-(2**31), 2**31), range(-(2**63), 2**63)
_DIGITS_OF_WHOLE = {8: 3, 16: 5, 32: 10, 64: 20}
"""Bits of a column of whole numbers → digits of the decimal that Spark reads it as."""

_EXACT_DOUBLES = 2**53
"""Whole numbers below this, and no others, are DOUBLEs without rounding."""

_DOUBLE_DIGITS = 15
"""Decimals of up to so many digits keep their order, and stay different, as DOUBLEs."""


def compared_numbers(of: pa.DataType, operator: Operator, literals: tuple[Literal, ...]) -> list[Decimal]:
    """What each value of a column of type ``of`` is compared with, exactly. Raises UnfitLiteral."""
    texts = [literal for literal in literals if isinstance(literal, str)]
    numbers = [literal for literal in literals if isinstance(literal, Decimal | float)]
    if len(texts) + len(numbers) < len(literals):
        raise UnfitLiteral("it must be a number such as 5 or -1.5")
    if texts:
        if numbers:
            raise UnfitLiteral("some of the numbers are in quotes: write all without")
        return [_from_text(of, text) for text in texts]
    if any(isinstance(number, float) for number in numbers):
        return [_as_double(of, float(number)) for number in numbers]
    exact = [number for number in numbers if isinstance(number, Decimal)]
    for number in exact:
        _check_size(of, number)
    if operator in _LISTS:
        return _in_list(of, exact)
    return [_as_decimal(of, operator, number) for number in exact]


def _from_text(of: pa.DataType, text: str) -> Decimal:
    if pa.types.is_decimal128(of):
        raise UnfitLiteral("it must be a number such as 5 or -1.5, without quotes, which would make it a DOUBLE")
    if not _WHOLE.fullmatch(text.strip()) or int(text) not in _BIGINT:
        raise UnfitLiteral("it must be a number such as 5 or -1.5; in quotes it must be a BIGINT")
    return Decimal(text.strip())


def _as_double(of: pa.DataType, number: float) -> Decimal:
    """The value to compare with exactly, so that the answers are those of a comparison of DOUBLEs."""
    if pa.types.is_decimal128(of):
        value = Decimal(repr(number))  # the shortest decimal that is this DOUBLE, as the column's decimals are
        same = of.precision <= _DOUBLE_DIGITS or abs(value) > 10 ** (of.precision - of.scale)
    else:
        value = Decimal(number)
        same = of.bit_width <= 32 or abs(value) < _EXACT_DOUBLES or abs(value) > 2**63
    if not same:
        raise UnfitLiteral("a number with an exponent is a DOUBLE, as which values of the column are rounded: write its digits")
    return value


def _check_size(of: pa.DataType, number: Decimal) -> None:
    if sum(_room(number)) > MAX_DIGITS:
        raise UnfitLiteral(f"a number has {MAX_DIGITS} digits at most")
    if pa.types.is_integer(of) and not _BIGINT[0] <= number <= _BIGINT[-1]:
        raise UnfitLiteral("it must lie in the range of BIGINT: beyond it Spark's answers for nulls differ")


def _as_decimal(of: pa.DataType, operator: Operator, number: Decimal) -> Decimal:
    if pa.types.is_integer(of) and operator not in _EQUALITIES:
        return number
    before, behind = (max(here, there) for here, there in zip(_room_of_column(of), _room(number), strict=True))
    if before + behind <= MAX_DIGITS:
        return number
    kept = MAX_DIGITS - before
    if kept < _room_of_column(of)[1]:
        raise _too_long(number)
    return number.quantize(Decimal(1).scaleb(-kept), ROUND_HALF_UP, _EXACT)


def _in_list(of: pa.DataType, numbers: list[Decimal]) -> list[Decimal]:
    rooms = [_room_of_column(of), *(_room_in_list(number) for number in numbers)]
    if max(before for before, _ in rooms) + max(behind for _, behind in rooms) > MAX_DIGITS:
        raise _too_long(max(numbers, key=lambda number: sum(_room(number))))
    return numbers


def _room_of_column(of: pa.DataType) -> tuple[int, int]:
    """Digits before and behind the point."""
    return (of.precision - of.scale, of.scale) if pa.types.is_decimal128(of) else (_DIGITS_OF_WHOLE[of.bit_width], 0)


def _room(number: Decimal) -> tuple[int, int]:
    parts = number.as_tuple()
    behind = max(0, -int(parts.exponent))
    return max(0, len(parts.digits) - behind), behind


def _room_in_list(number: Decimal) -> tuple[int, int]:
    before, behind = _room(number)
    if behind:
        return before, behind
    whole = 10 if int(number) in _INT else 20 if int(number) in _BIGINT else before
    return max(before, whole), 0


def _too_long(number: Decimal) -> UnfitLiteral:
    problem = f"{number} and the column together need more than {MAX_DIGITS} digits, so Spark would round"
    return UnfitLiteral(f"{problem}: write fewer digits, or use DataFrame.where()")
