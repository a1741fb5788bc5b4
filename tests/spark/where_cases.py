"""Random rows and conditions for option ``where``: every type, values and literals at the edges of their types."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from bk_spark.datasource.spark_schema import to_arrow

ZONE = "Europe/Berlin"
PAYLOADS, PAYLOAD_ROWS = 5, 64
_DISTINCT = 3
"""Values of a column in one payload: few, so that its bounds are narrow."""

DECIMALS = {f"d{p}_{s}": DecimalType(p, s) for p, s in ((5, 2), (20, 10), (38, 0), (38, 18), (38, 37))}
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
FLAT: dict[str, DataType] = {
    "flag": BooleanType(),
    "i8": ByteType(),
    "i16": ShortType(),
    "i32": IntegerType(),
    "i64": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "s": StringType(),
    "raw": BinaryType(),
    "day": DateType(),
    "clock": TimeType(6),
    "ts": TimestampType(),
    "ntz": TimestampNTZType(),
    **DECIMALS,
}
_ALL = StructType([StructField(name, kind) for name, kind in FLAT.items()])
NESTED = StructType([*_ALL, StructField("In ner", StructType([*_ALL]))])
SCHEMA = StructType([*_ALL, StructField("a.b", NESTED), StructField("row", IntegerType())])
NUMBERS = ["0", "1", "-1", "1.50", "0.1", "-0.0", "5.", "1e3", "1.5e0", "9007199254740993", "2147483648", "369.5"]
NUMBERS += ["1.0000000000000000000000000000001"]
TAILS = ["", ".0", ".5", ".49999", ".0000000000000000000001"]
STRINGS = ["", "a", "A", "a'b", 'q"x', "b\\c", "é", "\U0001f600", "\uffff", "a ", "1", "01", "ä\0z", "ab", "aba", "a%b", "a_b"]
STRINGS += ["a\nb", "\ufffd", "a\ufffdb", "x" * 64 + "a", "x" * 64 + "b", "x" * 70, r"a\%b", r"\_"]
ODD = [b"a\xff", b"\xffa", b"a\xed\xa0\x80b", b"\xed\xa0", b"a\xe2\x82", b"a\xf0ab", b"\xc0\x80", b"\xf4\x90\x80"]
ODD += [b"a\xffb\xff"]
PIECES = ["a", "b", "A", "é", "\U0001f600", "x" * 64, "\ufffd", "'", " ", "\n", "%", "%", "%", "_", "_", "\\%", "\\_", "\\\\"]
"""Of patterns."""

FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -1.5, 1e30, 16777216.0]
CHANGES = [datetime(2026, 3, 29, 1, 59, 59), datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30), datetime(1893, 4, 1)]
"""Where Berlin's clocks change: forward, back, and to a zone of whole minutes."""

MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


class Case:
    """Rows and conditions that one seed makes. The rows come in payloads of which each has few different values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.payloads = [self._payload(number) for number in range(PAYLOADS)]

    def condition(self, depth: int = 2) -> str:
        """Comparisons joined by AND, OR and NOT, with and without parentheses."""
        pick = self.random.random()
        if depth == 0 or pick < 0.3:
            return self._comparison()
        if pick < 0.5:
            return f"NOT {self._enclosed(self.condition(depth - 1))}"
        parts = [self.condition(depth - 1) for _ in range(self.random.randint(2, 3))]
        joins = [self.random.choice(["AND", "OR"]) for _ in parts[1:]]
        spelt = [part if self.random.random() < 0.4 else self._enclosed(part) for part in parts]
        return " ".join([spelt[0], *(f"{join} {part}" for join, part in zip(joins, spelt[1:], strict=True))])

    def _enclosed(self, part: str) -> str:
        return self.random.choice([f"({part})", f"({part})", f"(({part}))"])

    def _payload(self, number: int) -> pa.RecordBatch:
        arrow = to_arrow(SCHEMA)
        flat = {name: self._column(name, arrow.field(name).type) for name in FLAT}
        inner = self._struct(arrow.field("a.b").type.field("In ner").type, [])
        nested = self._struct(arrow.field("a.b").type, [inner])
        rows = pa.array(range(number * PAYLOAD_ROWS, (number + 1) * PAYLOAD_ROWS), pa.int32())
        return pa.RecordBatch.from_arrays([*flat.values(), nested, rows], schema=arrow)

    def _struct(self, kind: pa.DataType, last: list[pa.Array]) -> pa.Array:
        columns = [self._column(name, kind.field(name).type) for name in FLAT]
        nulls = pa.array([self.random.random() < 0.2 for _ in range(PAYLOAD_ROWS)])
        return pa.StructArray.from_arrays([*columns, *last], fields=list(kind), mask=nulls)

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        draw = self.random
        some = [self._value(name) for _ in range(_DISTINCT)]
        nulls = draw.choice([0.0, 0.2, 0.2, 1.0])
        values = [None if draw.random() < nulls else draw.choice(some) for _ in range(PAYLOAD_ROWS)]
        return pa.array(values, pa.binary()).view(pa.string()) if name == "s" else pa.array(values, kind)

    def _value(self, name: str) -> Any:
        draw = self.random
        if name in BITS:
            most = 2 ** (BITS[name] - 1)
            return draw.choice([draw.randrange(-most, most), draw.randrange(-5, 6), most - 1, -most, min(most - 1, 2**53 + 1)])
        if name in DECIMALS:
            precision, scale = DECIMALS[name].precision, DECIMALS[name].scale
            units = draw.choice([draw.randrange(10**precision), draw.randrange(1000), 10**precision - 1, 0, 10**scale])
            return Decimal(draw.choice([1, -1]) * (units % 10**precision)).scaleb(-scale, Context(prec=80))
        return _OTHERS[name](draw)

    def _comparison(self) -> str:
        draw, name = self.random, self.random.choice([*FLAT])
        path, pick = self._path(name), self.random.random()
        negation = draw.choice(["", "", "NOT "])
        if name == "s" and pick < 0.5:
            return f"{path} {negation}LIKE {self._pattern()}"
        if pick < 0.08:
            return draw.choice([f"{path} IS {negation}NULL", f"{path} <=> NULL", f"NULL <=> {path}"])
        if pick < 0.2:
            return f"{path} {negation}IN ({', '.join(self._literal(name) for _ in range(draw.randint(1, 3)))})"
        if pick < 0.3:
            return f"{path} {negation}BETWEEN {self._literal(name)} AND {self._literal(name)}"
        operator, literal = draw.choice([*MIRRORED]), self._literal(name)
        return f"{path} {operator} {literal}" if draw.random() < 0.7 else f"{literal} {MIRRORED[operator]} {path}"

    def _path(self, name: str) -> str:
        spelt = self.random.choice([name, name, name.upper(), f"`{name}`"])
        return self.random.choice([spelt, spelt, f"`a.b`.{spelt}", f"`a.b`.`In ner`.{spelt}"])

    def _pattern(self) -> str:
        draw = self.random
        form = draw.choice(["{}%", "%{}", "%{}%", "{}%{}", "{}", "{}{}{}"])
        text = "".join(draw.choice(PIECES) if part == "{}" else part for part in form.replace("{}", " {} ").split())
        if draw.random() < 0.2:
            return _quoted(text.replace("\\", "!")) + " ESCAPE '!'"
        return self._spelt(text)

    def _spelt(self, text: str) -> str:
        r"""``\%`` and ``\_`` are the same in SQL with one backslash and with two."""
        quoted = _quoted(text)
        return self.random.choice([quoted, quoted.replace(r"\\%", r"\%").replace(r"\\_", r"\_")])

    def _literal(self, name: str) -> str:
        draw = self.random
        column = draw.choice(self.payloads).column(name)
        value = draw.choice((column.cast(pa.binary()) if name == "s" else column).to_pylist())
        if name == "s":
            text = draw.choice(STRINGS) if value is None or value in ODD else value.decode()
            return draw.choice([self._spelt(text), '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'])
        if name == "flag":
            return draw.choice(["true", "FALSE", "'true'"])
        if name == "raw":
            return f"X'{(value or b'').hex()}'"
        if name == "clock":
            return draw.choice(["TIME ", ""]) + f"'{value or time(1)}'"
        if name == "day":
            return draw.choice([f"'{value or '2026-01-01'}'", f"DATE '{value or '2026-01-01'}'"])
        if name in ("ts", "ntz"):
            text = (value or CHANGES[0]).replace(tzinfo=None).isoformat(" ")
            prefix = draw.choice(["", "", "TIMESTAMP" if name == "ts" else "TIMESTAMP_NTZ"])
            offset = draw.choice(["", "", "Z", "+05:30"]) if name == "ts" else ""
            return draw.choice([f"{prefix} '{text}{offset}'", f"DATE '{text[:10]}'", f"'{text[:10]}'"])
        if isinstance(value, int | Decimal) and draw.random() < 0.5:
            digits = format(value, "f")
            return digits + (draw.choice(TAILS) if "." not in digits else draw.choice(["", "0", "5", "000000000001"]))
        return draw.choice([*NUMBERS, "'7'"] + (["'NaN'", "'-Infinity'"] if name in ("f", "d") else []))


def _moment(draw: random.Random) -> datetime:
    return draw.choice(CHANGES) + timedelta(minutes=draw.choice([0, 0, 30, -30, 60, -60]))


_OTHERS: dict[str, Callable[[random.Random], Any]] = {
    "flag": lambda draw: draw.random() < 0.5,
    "f": lambda draw: draw.choice(FLOATS),
    "d": lambda draw: draw.choice(FLOATS),
    "s": lambda draw: draw.choice([*(text.encode() for text in STRINGS), *ODD]),
    "raw": lambda draw: draw.choice([b"", b"\0", b"a", b"\xff", b"a\xff", b"y" * 64, b"y" * 64 + b"\xff", b"\xff" * 70]),
    "day": lambda draw: date(2026, 1, 1) + timedelta(days=draw.randrange(-3, 3)),
    "clock": lambda draw: draw.choice([time(0), time(1), time(12, 30, 1), time(23, 59, 59, 999999)]),
    "ts": _moment,
    "ntz": _moment,
}


def _quoted(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
