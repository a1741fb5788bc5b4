"""Numbers as texts. A number's value is kept exactly, or the text is refused; digits that a number would lose are no number.

A text is the number of a float if the float has as many digits: ``0.1``, ``0.10000000000000000555`` and the shortest text that
gives the float again are all fine; ``12345678901234567.89`` is not, a double is ``12345678901234568``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.commands.row_files.bad_value import BadValue

NUMBER = r"^-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
"""Without leading zeros: 00501 is a name, not a number."""
INTEGER = r"^-?(?:0|[1-9][0-9]*)(?:\.0*)?$"
NOT_FINITE = r"^(?:[nN]a[nN]|-?[iI]nf(?:inity)?)$"
"""NaN and Infinity are written; nan, inf and Inf are read, too."""

_DECIMAL_MISFIT = "does not fit {} without a change"
_LEADING_ZERO = r"^[+-]?0[0-9]"
_SAFE_CHARACTERS = {pa.float64(): 15, pa.float32(): 6}
"""A text of so many characters has no more digits than any float of the type keeps."""
_SMALLEST_NORMAL = {pa.float64(): 2.3e-308, pa.float32(): 1.2e-38}
_EXACT = Context(prec=5_000)
_DECIMAL_CHARACTERS = 38
"""Arrow refuses a text of so many characters that does not fit. A longer one may come out as another number."""


def is_like(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring_regex(texts, pattern)


def refuse_unlike(texts: pa.Array, pattern: str, why: str) -> None:
    """Raise BadValue for the first text that does not match."""
    bad = texts.filter(pc.invert(is_like(texts, pattern)))
    if len(bad):
        raise BadValue(bad[0].as_py(), why)


def integers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    _refuse_leading_zeros(texts, kind)
    refuse_unlike(texts, INTEGER, "is no whole number")
    plain = pc.replace_substring_regex(texts, r"\.0*$", "")
    return cast_each(plain, kind, f"does not fit {kind}")


def decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    _refuse_leading_zeros(texts, kind)
    refuse_unlike(texts, NUMBER, "is no number")
    is_doubtful = pc.or_(pc.greater(pc.utf8_length(texts), _DECIMAL_CHARACTERS), is_like(texts, "[eE]"))
    if pc.any(is_doubtful).as_py():
        plain = [_plain_decimal(text, kind) for text in texts.filter(is_doubtful).to_pylist()]
        texts = pc.replace_with_mask(texts, is_doubtful, pa.array(plain, pa.string()))
    return cast_each(texts, kind, _DECIMAL_MISFIT.format(kind))


def _plain_decimal(text: str, kind: pa.Decimal128Type) -> str:
    """The same number without an exponent, and without zeros that say nothing."""
    try:
        given = Decimal(text)
    except InvalidOperation:
        raise BadValue(text, _DECIMAL_MISFIT.format(kind)) from None
    value = given.normalize(Context(prec=len(text), Emax=MAX_EMAX, Emin=MIN_EMIN))
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number has one"
    if value and (value.adjusted() >= kind.precision - kind.scale or exponent < -kind.scale):
        raise BadValue(text, _DECIMAL_MISFIT.format(kind))
    return f"{value:f}" if value else "0"


def floats(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    _refuse_leading_zeros(texts, kind)
    is_finite = is_like(texts, NUMBER)
    refuse_unlike(texts.filter(pc.invert(is_finite)), NOT_FINITE, "is no number")
    found = cast_each(texts, kind, "is no number")
    values = found.to_numpy(zero_copy_only=False)
    size = np.abs(values)
    is_tiny = size < _SMALLEST_NORMAL[kind]
    is_doubtful = (pc.utf8_length(texts).to_numpy(zero_copy_only=False) > _SAFE_CHARACTERS[kind]) | np.isinf(values)
    if is_tiny.any():
        is_doubtful |= is_tiny & is_like(texts, r"^-?[0.]*[1-9]").to_numpy(zero_copy_only=False)
    is_doubtful &= is_finite.to_numpy(zero_copy_only=False)
    places = np.flatnonzero(is_doubtful)
    for place, text in zip(places, texts.take(pa.array(places)).to_pylist(), strict=True):
        if not _is_same(text, values[place]):
            raise BadValue(text, f"does not fit {kind}: it would become {float(values[place])!r}")
    return found


def float_texts(column: pa.Array) -> pa.Array:
    """The shortest text that gives the float again, always with a point or an exponent."""
    texts = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    for word, ours in (("nan", "NaN"), ("inf", "Infinity")):
        texts = pc.replace_substring(texts, word, ours)
    return texts


def cast_each(texts: pa.Array, kind: pa.DataType, why: str) -> pa.Array:
    """The texts as ``kind``. Raises BadValue for the first one that is not."""
    return convert_each(texts, lambda some: some.cast(kind), why)


def convert_each(texts: pa.Array, convert: Callable[[pa.Array], pa.Array], why: str) -> pa.Array:
    try:
        return convert(texts)
    except (pa.ArrowException, ValueError, OverflowError):
        for place in range(len(texts)):
            try:
                convert(texts.slice(place, 1))
            except (pa.ArrowException, ValueError, OverflowError):
                raise BadValue(texts[place].as_py(), why) from None
        raise


def _refuse_leading_zeros(texts: pa.Array, kind: pa.DataType) -> None:
    bad = texts.filter(is_like(texts, _LEADING_ZERO))
    if len(bad):
        raise BadValue(bad[0].as_py(), f"would lose its leading zeros as {kind}")


def _is_same(text: str, value: np.floating) -> bool:
    if not np.isfinite(value):
        return False
    given, shortest = Decimal(text), Decimal(str(value))
    if given == shortest or not value:
        return given == shortest
    exponent = given.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number has one"
    exact = Decimal(float(value))
    return -2_000 < exponent < 2_000 and given == exact.quantize(Decimal((0, (1,), exponent)), context=_EXACT)
