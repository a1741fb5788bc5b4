"""Numbers, days and times as JSON documents have them → the numbers of columns. See ``json_values``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

_START_OF_1970: Final = datetime(1970, 1, 1)
_DAY_OF_1970: Final = _START_OF_1970.toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


def whole(value: Any) -> int:
    """A whole number, also one written as 1.0. Raises ValueError or TypeError, as all here do, for what does not fit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, (float, Decimal)) and value == value // 1:
        return int(value)
    raise ValueError(f"{value!r} is no whole number")


def decimal_number(value: Any) -> Decimal:
    """A number or its text, exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, str, float, Decimal)):
        raise ValueError(f"{value!r} is no decimal")
    return Decimal(value)


def date_days(value: Any) -> int:
    """A day as days since 1970."""
    if isinstance(value, list):
        return date(*_parts(value, 3, 3)).toordinal() - _DAY_OF_1970
    if isinstance(value, str):
        return date.fromisoformat(value).toordinal() - _DAY_OF_1970
    return whole(value)


def time_nanoseconds(value: Any, unit_ns: int) -> int:
    """A time of the day as nanoseconds since midnight; a number counts in ``unit_ns``."""
    if isinstance(value, list):
        hour, minute, second, nanoseconds = _parts(value, 2, 4)
        return _nanoseconds(time(hour, minute, second), nanoseconds)
    if isinstance(value, str):
        found = time.fromisoformat(value)
        return _nanoseconds(found, found.microsecond * 1_000)
    return whole(value) * unit_ns


def utc_microseconds(value: Any, unit_ns: int) -> int:
    """A point of time as microseconds since 1970; a whole number counts in ``unit_ns``, one with a fraction in seconds."""
    if isinstance(value, (float, Decimal)):
        return round(value * 1_000_000)
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
        return _microseconds(found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None))
    return whole(value) * unit_ns // 1_000


def local_microseconds(value: Any, unit_ns: int) -> int:
    """A day with its time, in no zone, as microseconds since 1970; a number counts in ``unit_ns``."""
    if isinstance(value, list):
        *day_and_time, nanoseconds = _parts(value, 5, 7)
        year, month, day, hour, minute, second = day_and_time
        return _microseconds(datetime(year, month, day, hour, minute, second)) + nanoseconds // 1_000
    if isinstance(value, str):
        return _microseconds(datetime.fromisoformat(value))  # a TypeError for one with a zone
    return whole(value) * unit_ns // 1_000


def _parts(value: Sequence[Any], least: int, most: int) -> list[int]:
    if not least <= len(value) <= most:
        raise ValueError(f"{value!r} has not {least} to {most} numbers")
    return [*map(whole, value), *[0] * (most - len(value))]


def _microseconds(moment: datetime) -> int:
    return (moment - _START_OF_1970) // _MICROSECOND


def _nanoseconds(moment: time, below_second: int) -> int:
    return (moment.hour * 3600 + moment.minute * 60 + moment.second) * 1_000_000_000 + below_second
