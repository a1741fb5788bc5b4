"""Values of Pulsar's primitive types → columns, all rows at once.

All numbers are big-endian. The types of Java's clients, and the columns that Spark can hold:

::

    BOOLEAN                     1 byte, not 0 for true                          bool
    INT8, INT16, INT32, INT64   1, 2, 4, 8 bytes                                int8 … int64
    FLOAT, DOUBLE               4, 8 bytes                                      float32, float64
    DATE, TIME, TIMESTAMP       int64 milliseconds since 1970, UTC              timestamp (µs, UTC)
    INSTANT                     int64 seconds since 1970, int32 nanoseconds     timestamp (µs, UTC)
    LOCAL_DATE                  int64 days since 1970                           date32
    LOCAL_TIME                  int64 nanoseconds since midnight                int64, the same
    LOCAL_DATE_TIME             int64 days since 1970, int64 nanoseconds        timestamp (µs, without a zone)
    STRING                      text in UTF-8, or in property __charset         string

DATE and TIME are Java's java.util.Date and java.sql.Time: points of time, whose day and hour depend on a time zone that is not
stored, so they stay points of time. Nanoseconds below a microsecond are cut off from points of time. Times of the day are
numbers because Spark has no type for them unless it is told to.

Ref: the schema classes of pulsar-client, such as InstantSchema and LocalDateTimeSchema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.digest import payload_offsets
from bk_spark.errors import ConfigError
from bk_spark.pulsar.columns import TIMESTAMP
from bk_spark.pulsar.schemas import RAW
from bk_spark.pulsar.slices import bitmap
from bk_spark.pulsar.values.converted import Converted, ValueProblem, valid_rows

Numbers = npt.NDArray[Any]
Rows = npt.NDArray[np.bool_]

LOCAL_TIMESTAMP: Final = pa.timestamp("us")
NS_PER_DAY: Final = 86_400_000_000_000
_US_PER_DAY: Final = NS_PER_DAY // 1_000
_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FixedType:
    """A type whose values all have the same size."""

    stored: np.dtype[np.generic]
    arrow: pa.DataType
    column: Callable[[Numbers], tuple[Numbers, Rows]]
    """From the stored numbers to those of the column, and which of them the column can hold."""


def _same(stored: Numbers) -> tuple[Numbers, Rows]:
    return stored, np.ones(len(stored), np.bool_)


def _is_true(stored: Numbers) -> tuple[Numbers, Rows]:
    return stored != 0, np.ones(len(stored), np.bool_)


def _milliseconds(stored: Numbers) -> tuple[Numbers, Rows]:
    times = stored.astype(np.int64)
    return times * 1_000, _within(times, -_MAX // 1_000 + 1, _MAX // 1_000)


def _instant(stored: Numbers) -> tuple[Numbers, Rows]:
    seconds, nanos = stored["high"].astype(np.int64), stored["low"].astype(np.int64)
    most = _MAX // 1_000_000 - 1
    return seconds * 1_000_000 + nanos // 1_000, _within(seconds, -most, most) & _within(nanos, 0, 999_999_999)


def _date(stored: Numbers) -> tuple[Numbers, Rows]:
    return stored, _within(stored, -(2**31), 2**31 - 1)


def _time(stored: Numbers) -> tuple[Numbers, Rows]:
    return stored, _within(stored, 0, NS_PER_DAY - 1)


def _date_time(stored: Numbers) -> tuple[Numbers, Rows]:
    days, nanos = stored["high"].astype(np.int64), stored["low"].astype(np.int64)
    most = _MAX // _US_PER_DAY - 1
    return days * _US_PER_DAY + nanos // 1_000, _within(days, -most, most) & _within(nanos, 0, NS_PER_DAY - 1)


def _within(numbers: Numbers, least: int, most: int) -> Rows:
    within: Rows = (numbers >= least) & (numbers <= most)
    return within


_MILLISECONDS = FixedType(np.dtype(">i8"), TIMESTAMP, _milliseconds)

FIXED_TYPES: Final = {
    "BOOLEAN": FixedType(np.dtype("u1"), pa.bool_(), _is_true),
    "INT8": FixedType(np.dtype("i1"), pa.int8(), _same),
    "INT16": FixedType(np.dtype(">i2"), pa.int16(), _same),
    "INT32": FixedType(np.dtype(">i4"), pa.int32(), _same),
    "INT64": FixedType(np.dtype(">i8"), pa.int64(), _same),
    "FLOAT": FixedType(np.dtype(">f4"), pa.float32(), _same),
    "DOUBLE": FixedType(np.dtype(">f8"), pa.float64(), _same),
    "DATE": _MILLISECONDS,
    "TIME": _MILLISECONDS,
    "TIMESTAMP": _MILLISECONDS,
    "INSTANT": FixedType(np.dtype([("high", ">i8"), ("low", ">i4")]), TIMESTAMP, _instant),
    "LOCAL_DATE": FixedType(np.dtype(">i8"), pa.date32(), _date),
    "LOCAL_TIME": FixedType(np.dtype(">i8"), pa.int64(), _time),
    "LOCAL_DATE_TIME": FixedType(np.dtype([("high", ">i8"), ("low", ">i8")]), LOCAL_TIMESTAMP, _date_time),
}


def fixed_values(kind: str, values: pa.BinaryArray) -> Converted:
    """Values of ``kind``, one of FIXED_TYPES, as its column. Values of another size or beyond the column are problems."""
    fixed = FIXED_TYPES[kind]
    stored, sized = _stored(values, fixed.stored)
    numbers, holds = fixed.column(stored)
    fits = sized & holds
    problems = tuple(_problem(kind, values[row], row, bool(sized[row])) for row in _misfits(values, fits))
    return Converted(_array(numbers, fits, fixed.arrow), problems)


def text_values(values: pa.BinaryArray, charset: str) -> Converted:
    """Text of a charset (Java's name) as strings. Bytes that are no text become U+FFFD, as Java's clients read them.

    Raises ConfigError for a charset that Python does not know.
    """
    codec = text_codec(charset)
    if codec == "utf-8":
        try:
            return Converted(values.cast(pa.string()))
        except pa.ArrowInvalid:
            pass  # some row is no UTF-8
    texts = [None if data is None else decoded_text(data, codec) for data in values.to_pylist()]
    return Converted(pa.array(texts, pa.string()))


def text_codec(charset: str) -> str:
    """Python's name of a charset of Java. Raises ConfigError if it has none."""
    codec = charset.lower().replace("_", "-")
    try:
        b"a".decode(codec, "replace")  # not of no bytes: those need no codec
    except LookupError:
        raise ConfigError("the charset of the topic's schema", charset, f"Python does not know it: {RAW}") from None
    return codec


def decoded_text(data: bytes, codec: str) -> str:
    """Text from bytes. Where UTF-16 and UTF-32 do not say their byte order, it is big-endian in Java."""
    if codec in ("utf-16", "utf-32"):
        marks = {"utf-16": (b"\xff\xfe", b"\xfe\xff"), "utf-32": (b"\xff\xfe\0\0", b"\0\0\xfe\xff")}[codec]
        codec = codec if data.startswith(marks) else f"{codec}-be"
    return data.decode(codec, "replace")


def _stored(values: pa.BinaryArray, stored: np.dtype[np.generic]) -> tuple[Numbers, Rows]:
    """The numbers of all rows, and which rows have the size of one; the others have zeros."""
    offsets = payload_offsets(values).astype(np.int64)
    sized = valid_rows(values) & (np.diff(offsets) == stored.itemsize)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    if sized.all():
        return data[offsets[0] : offsets[-1]].view(stored), sized
    numbers = np.zeros((len(values), stored.itemsize), np.uint8)
    numbers[sized] = data[offsets[:-1][sized][:, None] + np.arange(stored.itemsize)]
    return numbers.reshape(-1).view(stored), sized


def _misfits(values: pa.BinaryArray, fits: Rows) -> list[int]:
    rows: list[int] = np.flatnonzero(~fits & valid_rows(values)).tolist()
    return rows


def _problem(kind: str, value: pa.BinaryScalar, row: int, is_sized: bool) -> ValueProblem:
    data = value.as_py()
    if is_sized:
        return ValueProblem(row, f"a column cannot hold the value {data.hex()} of type {kind}")
    return ValueProblem(row, f"{len(data)} bytes are no value of type {kind}, which has {FIXED_TYPES[kind].stored.itemsize}")


def _array(numbers: Numbers, fits: Rows, arrow: pa.DataType) -> pa.Array:
    validity = None if fits.all() else bitmap(fits)
    is_bits = pa.types.is_boolean(arrow)
    data = bitmap(numbers) if is_bits else pa.py_buffer(np.ascontiguousarray(numbers.astype(_native(arrow))))
    return pa.Array.from_buffers(arrow, len(numbers), [validity, data])


def _native(arrow: pa.DataType) -> np.dtype[np.generic]:
    kind = "f" if pa.types.is_floating(arrow) else "i"
    return np.dtype(f"{kind}{arrow.bit_width // 8}")
