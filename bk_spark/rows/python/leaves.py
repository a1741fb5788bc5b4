"""Values that hold no others: each becomes the one form that Arrow takes as it is, or is refused with the reason."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as of

from bk_spark.rows.local_time import microseconds
from bk_spark.rows.validity import DAY_NS

_EXACT = Context(prec=76)
_ATTOSECONDS = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18, "s": 10**18,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_MICROSECOND = datetime.timedelta(microseconds=1)
_FINE = "it has more than microseconds: round it before"
_NO_ZONE = "it names no time zone: give it the one it is meant in, such as tzinfo=datetime.UTC"
_ZONE = "the column has no time zone: as such it would lose its own, remove it before"


class NotTaken(Exception):
    """Why a value is not taken; empty if it is of a wrong type."""


def refuse(reason: str = "") -> NoReturn:
    raise NotTaken(reason)


def _whole(value: Any, bits: int) -> int:
    """A number as one of ``bits`` bits, with a sign."""
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        refuse()
    if isinstance(value, (float, np.floating, Decimal)):
        if not (value.is_finite() if isinstance(value, Decimal) else np.isfinite(value)):
            refuse()
        if isinstance(value, Decimal) and value.adjusted() > 20:
            refuse(f"it is beyond {bits} bits: take a column of a larger type")
        number = int(value)
        if number != value:
            refuse("it would lose what is behind the point: round it before")
    elif hasattr(value, "__index__"):
        number = operator.index(value)
    else:
        refuse()
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        refuse(f"it is beyond {bits} bits: take a column of a larger type")
    return number


def _is_integer(value: Any) -> bool:
    """To numpy a length of time is an integer, and to Python a boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def _floating(kind: pa.DataType, value: Any) -> float:
    if isinstance(value, (float, np.floating)):
        return _rounded(value) if of.is_float32(kind) else _double(value)
    if not _is_integer(value):
        refuse()
    digits = 24 if of.is_float32(kind) else 53
    number = int(value)
    bits = number.bit_length()
    zeros = max(0, bits - digits)
    if number >> zeros << zeros != number or bits > (128 if of.is_float32(kind) else 1024):
        refuse(f"a {kind} has not as many digits: convert it with float(), or take a column of another type")
    return float(number)


def _rounded(value: Any) -> float:
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    if np.isinf(single) != np.isinf(value) or (single == 0) != (value == 0):
        refuse("a float has 32 bits, in which it becomes infinite or 0: take a column of doubles")
    return float(value if isinstance(value, float) else single)


def _double(value: Any) -> float:
    with np.errstate(over="ignore", under="ignore"):
        double = float(value)
    if double != value and value == value:
        refuse("a double has not as many digits: round it with float() before")
    return double


def _decimal(kind: pa.DataType, value: Any) -> Decimal:
    if _is_integer(value):
        value = Decimal(int(value))
    if not isinstance(value, Decimal):
        refuse()
    if not value.is_finite():
        refuse("a decimal is a finite number: leave it out")
    if value and value.adjusted() >= kind.precision - kind.scale:
        refuse(f"{kind} has {kind.precision - kind.scale} digits before the point: take a column of a larger type")
    taken = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if taken != value:
        refuse(f"{kind} has {kind.scale} digits behind the point: round it before")
    return taken


def _text(kind: pa.DataType, value: Any) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
        return value.decode() if isinstance(value, (bytes, bytearray)) else refuse()
    except UnicodeError:
        refuse("it is no text of Unicode, or its bytes are no UTF-8: correct it, or take a column of bytes")


def _bytes(kind: pa.DataType, value: Any) -> bytes:
    if isinstance(value, str):
        return _text(kind, value).encode()
    if isinstance(value, (bytes, bytearray)) or (isinstance(value, memoryview) and value.itemsize == 1):
        return bytes(value)
    refuse()


def _boolean(kind: pa.DataType, value: Any) -> bool:
    return bool(value) if isinstance(value, (bool, np.bool_)) else refuse()


def _date(kind: pa.DataType, value: Any) -> int:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None or value.time() != datetime.time() or getattr(value, "nanosecond", 0) != 0:
            refuse("as a date it would lose its time of day, or its zone: convert it with .date() before")
        return value.toordinal() - _DAY_OF_1970
    if isinstance(value, datetime.date):
        return value.toordinal() - _DAY_OF_1970
    if isinstance(value, np.datetime64):
        return _whole(_counted(value, "D", "as a date it would lose its time of day: convert it before"), 32)
    return _whole(value, 32)


_DAY_OF_1970 = datetime.date(1970, 1, 1).toordinal()


def _timestamp(kind: pa.DataType, value: Any) -> int:
    if isinstance(value, datetime.datetime):
        has_zone = value.utcoffset() is not None
        if has_zone != (kind.tz is not None):
            refuse(_ZONE if has_zone else _NO_ZONE)
        if hasattr(value, "to_datetime64"):
            return _counted(value.to_datetime64(), "us", _FINE)
        return microseconds(value if has_zone else value.replace(tzinfo=None), datetime.UTC)
    if isinstance(value, np.datetime64):
        return _counted(value, "us", _FINE) if kind.tz is None else refuse(_NO_ZONE)
    return _whole(value, 64)


def _time(kind: pa.DataType, value: Any) -> int:
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            refuse("a time of day has no zone: remove it before")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) * 1000
    number = _whole(value, 64)
    if number % 1000 or not 0 <= number < DAY_NS:
        refuse("a time of day has whole microseconds, given in nanoseconds, and ends before 24 hours: round or correct it")
    return number


def _duration(kind: pa.DataType, value: Any) -> int:
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()
    if isinstance(value, np.timedelta64):
        return _counted(value, "us", _FINE)
    return _whole(value // _MICROSECOND if isinstance(value, datetime.timedelta) else value, 64)


def _counted(value: np.datetime64 | np.timedelta64, unit: str, loss: str) -> int:
    """A moment or a length of time as a number of ``unit``."""
    own, count = np.datetime_data(value.dtype)
    if isinstance(value, np.datetime64) and own in ("Y", "M"):
        value, own, count = value.astype("M8[D]"), "D", 1
    if own not in _ATTOSECONDS:
        refuse("it has no unit, or one of no fixed length: convert it before")
    number, rest = divmod(int(value.astype(np.int64)) * count * _ATTOSECONDS[own], _ATTOSECONDS[unit])
    return refuse(loss) if rest else _whole(number, 64)


TAKE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Any], Any]], ...] = (
    (of.is_integer, lambda kind, value: _whole(value, kind.bit_width)),
    (of.is_floating, _floating),
    (of.is_string, _text),
    (of.is_binary, _bytes),
    (of.is_boolean, _boolean),
    (of.is_decimal, _decimal),
    (of.is_date, _date),
    (of.is_timestamp, _timestamp),
    (of.is_time, _time),
    (of.is_duration, _duration),
)
