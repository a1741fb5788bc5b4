"""Dates, times, timestamps and durations as texts of ISO 8601, over the whole range of their types.

=============================== ==========================================================================
written                         is also read as
=============================== ==========================================================================
2026-01-31                      years have four digits or more, and may be negative
2026-01-31T12:30:00.000001Z     a space for the T, any offset for the Z, fewer digits, no seconds
2026-01-31T12:30:00.000001      the same; a type without a zone takes no offset, one with a zone needs it
12:30:00.000001                 likewise
PT5400.000001S, -PT0.5S         days, hours and minutes, too: P1DT2H3M4.5S
=============================== ==========================================================================
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.commands.row_files.numbers import convert_each

YEAR = "-?[0-9]{4,}"
DATE = f"(?P<date>{YEAR}-[0-9]{{2}}-[0-9]{{2}})"
CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
OFFSET = r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
DATE_ALONE = f"^{DATE}$"
WITHOUT_ZONE = f"^{DATE}[T ]{CLOCK}$"
WITH_ZONE = f"^{DATE}[T ]{CLOCK} ?{OFFSET}$"
_TIME = f"^{CLOCK}$"
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[0-9]{1,20})D)?"
    r"(?:T(?=[0-9-])(?:(?P<hours>[0-9]{1,20})H)?(?:(?P<minutes>[0-9]{1,20})M)?(?:(?P<seconds>-?[0-9]{1,20})(?:\.(?P<fraction>[0-9]{1,6})0*)?S)?)?"
)

_DAY_NS = 86_400_000_000_000
_DAY_US = _DAY_NS // 1000
_YEAR_0 = -719_528
"""Its first day. numpy counts the sign of a year before it among the four digits."""
_MIN_DAY, _MAX_DAY = -(2**63) // _DAY_US, (2**63 - 1) // _DAY_US
"""Days of timestamps with 64 bits of microseconds."""


def dates(texts: pa.Array) -> pa.Array:
    days = _days(texts, _parts(texts, DATE_ALONE, "is no date such as 2026-01-31"))
    _refuse(texts, days != days.astype(np.int32), "is beyond the dates of 32 bits")
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def times(texts: pa.Array) -> pa.Array:
    clock_ns = _clock_ns(texts, _parts(texts, _TIME, "is no time such as 12:30:00"))
    _refuse(texts, clock_ns % 1000 != 0, "is finer than a microsecond")
    return pa.array(clock_ns, pa.int64()).cast(pa.time64("ns"))


def timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """``kind`` has microseconds. Raises BadValue also for an offset where none is expected, and for none where one is."""
    has_zone = kind.tz is not None
    pattern, other = (WITH_ZONE, WITHOUT_ZONE) if has_zone else (WITHOUT_ZONE, WITH_ZONE)
    wrong = texts.filter(pc.match_substring_regex(texts, other))
    if len(wrong):
        why = "has no zone: add Z or an offset such as +02:00" if has_zone else "has a zone, and the column's type has none"
        raise BadValue(wrong[0].as_py(), why)
    parts = _parts(texts, pattern, f"is no timestamp such as 2026-01-31T12:30:00{'Z' if has_zone else ''}")
    days, clock_ns = _days(texts, parts), _clock_ns(texts, parts)
    _refuse(texts, clock_ns % 1000 != 0, "is finer than a microsecond")
    _refuse(texts, (days < _MIN_DAY) | (days > _MAX_DAY), "is beyond the timestamps of 64 bits")
    clock_us = clock_ns // 1000 - (_offset_us(texts, parts) if has_zone else 0)
    with np.errstate(over="ignore"):
        found = days * _DAY_US + clock_us
    _refuse(texts, np.abs(found // _DAY_US - days) > 1, "is beyond the timestamps of 64 bits")
    return pa.array(found, pa.int64()).cast(kind)


def durations(texts: pa.Array) -> pa.Array:
    return pa.array([_duration_us(text) for text in texts.to_pylist()], pa.int64()).cast(pa.duration("us"))


def date_texts(column: pa.Array) -> pa.Array:
    return _date_texts(column.cast(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64))


def time_texts(column: pa.Array) -> pa.Array:
    return _clock_texts(column.cast(pa.int64()).to_numpy(zero_copy_only=False))


def timestamp_texts(column: pa.Array) -> pa.Array:
    """Of microseconds."""
    us = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    date, clock = _date_texts(us // _DAY_US), _clock_texts(us % _DAY_US * 1000)
    return pc.binary_join_element_wise(date, clock, "T") if column.type.tz is None else _with_zone(date, clock)


def duration_texts(column: pa.Array) -> pa.Array:
    return pa.array([_duration_text(us) for us in column.cast(pa.int64()).to_pylist()], pa.string())


def _with_zone(date: pa.Array, clock: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pc.binary_join_element_wise(date, clock, "T"), "Z", "")


def _date_texts(days: Any) -> pa.Array:
    texts = pa.array(np.datetime_as_string(days.astype("datetime64[D]")), pa.string())
    return pc.replace_substring_regex(texts, r"^-(...)-", r"-0\1-") if (days < _YEAR_0).any() else texts


def _clock_texts(clock_ns: Any) -> pa.Array:
    """Microseconds, and nanoseconds where there are some."""
    moments = clock_ns.astype("datetime64[ns]")
    texts = np.datetime_as_string(moments, "ns") if (clock_ns % 1000).any() else np.datetime_as_string(moments, "us")
    return pc.utf8_slice_codeunits(pa.array(texts, pa.string()), len("1970-01-01T"))


def _parts(texts: pa.Array, pattern: str, why: str) -> pa.StructArray:
    parts = pc.extract_regex(texts, pattern)
    _refuse(texts, parts.is_null().to_numpy(zero_copy_only=False), why)
    return parts


def _days(texts: pa.Array, parts: pa.StructArray) -> Any:
    days = convert_each(parts.field("date"), _days_of, "is no day of the calendar")
    return days.to_numpy(zero_copy_only=False)


def _days_of(texts: pa.Array) -> pa.Array:
    return pa.array(np.array(texts.to_pylist(), "datetime64[D]").astype(np.int64), pa.int64())


def _clock_ns(texts: pa.Array, parts: pa.StructArray) -> Any:
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    _refuse(texts, (hour > 23) | (minute > 59) | (second > 59), "is no time of a day, from 00:00:00 to 23:59:59.999999")
    fraction = pc.utf8_rpad(parts.field("fraction"), 9, "0").cast(pa.int64()).to_numpy()
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction


def _offset_us(texts: pa.Array, parts: pa.StructArray) -> Any:
    """East of Greenwich."""
    digits = pc.replace_substring_regex(parts.field("offset"), r"^Z$|:", "")
    hours = pc.utf8_slice_codeunits(digits, 1, 3)
    minutes = pc.utf8_slice_codeunits(digits, 3, 5)
    hour, minute = (_with_zeros(some) for some in (hours, minutes))
    _refuse(texts, (hour > 18) | (minute > 59), "has no offset of a zone, which are up to 18 hours")
    sign = np.where(pc.starts_with(digits, "-").to_numpy(zero_copy_only=False), -1, 1)
    return sign * (hour * 60 + minute) * 60_000_000


def _number(parts: pa.StructArray, name: str) -> Any:
    return _with_zeros(parts.field(name))


def _with_zeros(texts: pa.Array) -> Any:
    """Any; what the text does not have is 0."""
    return pc.utf8_lpad(texts, 1, "0").cast(pa.int64()).to_numpy()


def _refuse(texts: pa.Array, is_bad: Any, why: str) -> None:
    if is_bad.any():
        raise BadValue(texts[int(np.argmax(is_bad))].as_py(), why)


def _duration_us(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or text.endswith("P"):
        raise BadValue(text, "is no duration such as PT1.5S or P1DT2H, in microseconds at most")
    seconds = (int(found["days"] or 0) * 24 + int(found["hours"] or 0)) * 60 + int(found["minutes"] or 0)
    seconds = seconds * 60 + int(found["seconds"] or 0)
    fraction = int((found["fraction"] or "").ljust(6, "0") or 0)
    is_negative_part = (found["seconds"] or "").startswith("-")
    us = seconds * 1_000_000 + (-fraction if is_negative_part else fraction)
    us = -us if found["sign"] == "-" else us
    if not -(2**63) <= us < 2**63:
        raise BadValue(text, "is beyond the durations of 64 bits")
    return us


def _duration_text(us: int) -> str:
    seconds, fraction = divmod(abs(us), 1_000_000)
    return f"{'-' if us < 0 else ''}PT{seconds}{f'.{fraction:06}' if fraction else ''}S"
