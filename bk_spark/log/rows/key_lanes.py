"""The lanes of a write, and which lanes a read needs: what Spark's readers and writers and those without Spark share.

Ref: DESIGN.md, "Keys and lanes".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.schema import Schema
from bk_spark.log.stored.values import Head
from bk_spark.rows.arrow_types import arrow_schema, has_collation
from bk_spark.rows.lane_limits import DEFAULT_LANES, MAX_KEY_COLUMNS, MAX_LANES
from bk_spark.rows.lanes import KINDS, KeyValue, kind_of_key, lane_of
from bk_spark.rows.statistics import Key
from bk_spark.rows.where.comparison import BoundComparison
from bk_spark.rows.where.filter import RowFilter
from bk_spark.rows.where.tree import Operator

MAX_KEYS = 1000
"""Keys that one condition may name, each of which is hashed when a read is planned; with more, all lanes are read."""


@dataclass(frozen=True, slots=True)
class AskedLanes:
    """What a writer asks for: key columns, none for those of the log, and the number of lanes, None for the log's."""

    columns: tuple[str, ...] = ()
    count: int | None = None
    column_option: str = "option 'partitionKey'"
    count_option: str = "option 'lanes'"

    def __post_init__(self) -> None:
        if not all(self.columns) or len(self.columns) > MAX_KEY_COLUMNS:
            remedy = f"it must name 1 to {MAX_KEY_COLUMNS} columns"
            raise ConfigError(self.column_option, ",".join(self.columns), remedy)
        if self.count is not None and (type(self.count) is not int or not 1 <= self.count <= MAX_LANES):
            raise ConfigError(self.count_option, self.count, f"it must be a whole number from 1 to {MAX_LANES}")

    @staticmethod
    def of(partition_key: str | Sequence[str] | None, lanes: int | None) -> AskedLanes:
        """As arguments of a program without Spark. Raises ConfigError."""
        try:
            names = [partition_key] if isinstance(partition_key, str) else list(partition_key or ())
        except TypeError:
            raise ConfigError("partition_key", partition_key, "it must be the name of a column, or a list of names") from None
        if partition_key is not None and not (names and all(isinstance(one, str) and one for one in names)):
            raise ConfigError("partition_key", partition_key, "it must be the name of a column, or a list of names")
        return AskedLanes(tuple(names), lanes, "partition_key", "lanes")

    def appended(self, head: Head, schema: Schema) -> Lanes:
        """The lanes of rows with this schema that are appended to a log. Raises ConfigError where they are not the log's."""
        if head.content is None:
            return self._new(schema)
        log, kept = f"log '{head.name}'", head.lanes
        if self.columns and self.count != 1 and tuple(self._resolved(schema)) != kept.columns:
            keeps = f"it has {kept}" if kept.columns else "it was begun without a key"
            remedy = f"{log} keeps what its first rows had, and {keeps}: leave it out, overwrite the log, or write a new one"
            raise ConfigError(self.column_option, ",".join(self.columns), remedy)
        if self.count not in (None, kept.count):
            remedy = f"{log} keeps what its first rows had, {kept}: leave it out, overwrite the log, or write a new one"
            raise ConfigError(self.count_option, self.count, remedy)
        for name, kind in zip(kept.columns, kept.kinds, strict=True):
            self._check_kind(head.name, schema, name, kind)
        return kept

    def overwritten(self, head: Head, schema: Schema) -> Lanes:
        """The lanes of rows with this schema that replace all others: those of the log, unless others are asked for."""
        if self.columns or not head.lanes.columns:
            return self._new(schema)
        return self._made(schema, head.lanes.columns, head.lanes.count if self.count is None else self.count)

    def _new(self, schema: Schema) -> Lanes:
        if not self.columns:
            if self.count not in (None, 1):
                remedy = f"rows go to several lanes by their keys: give {self.column_option}, too"
                raise ConfigError(self.count_option, self.count, remedy)
            return PLAIN
        return self._made(schema, self.columns, DEFAULT_LANES if self.count is None else self.count)

    def _made(self, schema: Schema, columns: Sequence[str], count: int) -> Lanes:
        named = AskedLanes(tuple(columns), count, self.column_option, self.count_option)
        found = named._resolved(schema)
        return Lanes(tuple(found), tuple(found.values()), count) if count > 1 else PLAIN

    def _resolved(self, schema: Schema) -> dict[str, str]:
        """The key columns as the schema spells them, and the kind of each. Raises ConfigError."""
        found: dict[str, str] = {}
        for asked in self.columns:
            name = _spelt(asked, [field["name"] for field in schema["fields"]])
            if name is None:
                names = ", ".join(field["name"] for field in schema["fields"])
                raise ConfigError(self.column_option, asked, f"the rows have no such column, they have {names}")
            if name in found:
                raise ConfigError(self.column_option, ",".join(self.columns), f"it names column '{name}' twice")
            kind = _kind(schema, name)
            if kind is None:
                remedy = f"a key is a boolean, a number, a date, a timestamp, a string or a binary: {_NOT_A_KEY}"
                raise ConfigError(f"key column '{name}' ({self.column_option})", _type(schema, name), remedy)
            found[name] = kind
        return found

    def _check_kind(self, log: str, schema: Schema, name: str, kind: str) -> None:
        if name not in [field["name"] for field in schema["fields"]]:
            names = ", ".join(field["name"] for field in schema["fields"])
            remedy = (
                f"log '{log}' puts rows in lanes by column '{name}', the rows have only {names}: add it, null where unknown"
            )
            raise ConfigError("the key of the rows", None, remedy)
        if not pa.types.is_null(_field(schema, name).field(name).type) and _kind(schema, name) != kind:
            remedy = f"log '{log}' puts rows in lanes by it as {kind}, and the same key would be in two lanes: cast it"
            raise ConfigError(f"key column '{name}'", _type(schema, name), remedy)


_NOT_A_KEY = "cast it, or choose another column"
_EXACT = Context(prec=76)


def _spelt(wanted: str, names: Sequence[str]) -> str | None:
    """As Spark finds it, without regard to case."""
    return wanted if wanted in names else next((name for name in names if name.lower() == wanted.lower()), None)


def _kind(schema: Schema, name: str) -> str | None:
    field = _field(schema, name)
    return None if has_collation(field, (name,)) else kind_of_key(field.field(name).type)


def _type(schema: Schema, name: str) -> str:
    field = _field(schema, name)
    collation = " with a collation of its own" if has_collation(field, (name,)) else ""
    return f"{field.field(name).type}{collation}"


def _field(schema: Schema, name: str) -> pa.Schema:
    return arrow_schema({"fields": [field for field in schema["fields"] if field["name"] == name]})


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """Which lanes a read needs."""

    asked: tuple[int, ...] = ()
    """The lanes that the user named; empty for all."""
    where: RowFilter | None = None
    """The condition on its rows."""
    option: str = "option 'lane'"

    def of(self, log: str, version: int, lanes: Lanes) -> frozenset[int] | None:
        """The lanes to read of a version; None for all. Raises ConfigError for one that the version does not have."""
        wrong = next((one for one in self.asked if type(one) is not int or not 0 <= one < lanes.count), None)
        if wrong is not None:
            has = "lane 0 alone" if lanes.count == 1 else f"the lanes 0 to {lanes.count - 1}"
            raise ConfigError(self.option, wrong, f"version {version} of log '{log}' has {has}")
        if lanes.count == 1:
            return None
        matching = None if self.where is None else lanes_of_matches(self.where, lanes)
        if not self.asked:
            return matching
        return frozenset(self.asked) if matching is None else matching.intersection(self.asked)


def lanes_of_matches(where: RowFilter, lanes: Lanes) -> frozenset[int] | None:
    """The lanes in which rows can match; None for all.

    A condition names keys if it can only be true of rows in which every key column has one of some values. ``where`` may be
    bound to wider types than the log's, as in a read of several logs: then its values are not the ones that were hashed.
    """
    keys: list[list[KeyValue]] = []
    for name, kind in zip(lanes.columns, lanes.kinds, strict=True):
        values = _values_of(where, name) if kind in KINDS else None
        of = where.columns.field(name).type if values is not None else None
        if values is None or kind_of_key(of) != kind:
            return None
        keys.append([_key_value(value, of) for value in values])
    if math.prod(map(len, keys)) > MAX_KEYS:
        return None
    return frozenset(lane_of(key, lanes.count) for key in itertools.product(*keys))


def _key_value(value: Key | None, of: pa.DataType) -> KeyValue:
    """A value of a column, as a condition compares it, as a key."""
    if value is None:
        return None
    if pa.types.is_decimal(of):
        return Decimal(int(value)).scaleb(-of.scale, _EXACT)
    return float(value) if pa.types.is_floating(of) else value


def _values_of(where: RowFilter, column: str) -> tuple[Key | None, ...] | None:
    """Values of a column, one of which each row that matches has; None if it may have any."""
    for part in where.required():
        if part.path == (column,):
            found = _fixed(part)
            if found is not None:
                return found
    return None


def _fixed(part: BoundComparison) -> tuple[Key | None, ...] | None:
    if part.operator is Operator.IS_NULL:
        return (None,)
    return part.keys if part.operator in (Operator.EQUAL, Operator.IN) else None
