"""``--types``: columns with Spark SQL's names of types, such as ``zip:string,price:decimal(10,2),tags:array<string>``."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.rows.arrow_types import arrow_schema

_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "time": "time(6)",
    "time(6)": "time(6)",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "interval day to second": "interval day to second",
    "decimal": "decimal(10,0)",
}
"""What may be given → Spark's name in the JSON of a schema."""

_KNOWN = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, time, timestamp, "
    "timestamp_ntz, interval day to second, array<…>, map<…,…>, struct<name:…>"
)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^:,<>`]+?))\s*:")
_WORDS = re.compile(r"\s*([a-z_]+(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\)| day to second)?)\s*")
_DECIMAL = re.compile(r"decimal\((\d+)(?:,(\d+))?\)")
_MAX_DEPTH = 50
"""Of nested types: data of people and programs have fewer than ten."""


def column_types(text: str) -> dict[str, pa.DataType]:
    """By column: its type as a log stores it. Raises ConfigError."""
    return {field.name: field.type for field in arrow_schema({"fields": _Types(text).columns()})}


class _Types:
    """The text, and how far it is read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def columns(self) -> list[dict[str, Any]]:
        fields = self._fields("", 0)
        if self._at < len(self._text):
            raise self._wrong("a comma is expected")
        return fields

    def _fields(self, end: str, depth: int) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = []
        while True:
            name = self._name()
            if name.lower() in (field["name"].lower() for field in fields):
                raise self._wrong(f"'{name}' is there twice")
            fields.append({"name": name, "type": self._type(depth), "nullable": True, "metadata": {}})
            if not self._skip(","):
                break
        if end:
            self._expect(end)
        return fields

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._wrong(
                "a column and a colon are expected, such as zip:string, and `a name` in backquotes if it has , or :"
            )
        self._at = found.end()
        return found[1].replace("``", "`") if found[1] else found[2]

    def _type(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self._wrong(f"types are nested in at most {_MAX_DEPTH} others")
        found = _WORDS.match(self._text.lower(), self._at)
        if found is None:
            raise self._wrong("a type is expected")
        words = found[1]
        self._at = found.end()
        if words == "array" and self._skip("<"):
            return {"type": "array", "elementType": self._closed(depth), "containsNull": True}
        if words == "map" and self._skip("<"):
            key = self._type(depth + 1)
            self._expect(",")
            return {"type": "map", "keyType": key, "valueType": self._closed(depth), "valueContainsNull": True}
        if words == "struct" and self._skip("<"):
            return {"type": "struct", "fields": self._fields(">", depth + 1)}
        return self._simple(words)

    def _simple(self, words: str) -> str:
        name = re.sub(r"\s+", " ", re.sub(r"\s*([(),])\s*", r"\1", words))
        if name in _SIMPLE:
            return _SIMPLE[name]
        if found := _DECIMAL.fullmatch(name):
            precision, scale = int(found[1]), int(found[2] or 0)
            if not 1 <= precision <= 38 or scale > precision:
                raise self._wrong(f"{name} has no precision from 1 to 38, or a scale above it")
            return f"decimal({precision},{scale})"
        raise self._wrong(f"'{words}' is no type; types are {_KNOWN}")

    def _closed(self, depth: int) -> Any:
        kind = self._type(depth + 1)
        self._expect(">")
        return kind

    def _skip(self, mark: str) -> bool:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._wrong(f"'{mark}' is expected")

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError("--types", self._text, f"at character {self._at + 1}: {why}")
