"""The keys that a program asks for, in the types of the log's key columns. What is not of such a type is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.log.rows.given_rows import batches_of, stream_of
from bk_spark.rows.conversion import Conversion
from bk_spark.rows.keys.key_filter import KeyProbes, Places
from bk_spark.rows.keys.key_search import first_places
from bk_spark.rows.lanes import key_checksums, kind_of_key
from bk_spark.rows.python.columns import REFUSED, array_of_values
from bk_spark.rows.python.values import Unfit
from bk_spark.rows.statistics import Key, key_of

MAX_KEYS = 100_000
"""Of one call: its keys, and all rows that it finds, are in memory at once."""

_FORMS = "a list of keys, or an Arrow array or table of them"


@dataclass(frozen=True, eq=False)
class AskedKeys:
    """Keys that differ from each other, in the order in which they were given."""

    columns: tuple[pa.Array, ...]
    """One for each key column of the log, in its type."""

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def _checksums(self) -> Any:
        return key_checksums(self.columns, len(self))

    @cached_property
    def probes(self) -> KeyProbes:
        return KeyProbes(self._checksums)

    def by_lane(self, count: int) -> dict[int, Places]:
        """The lanes that have keys, ascending, with the places of these keys."""
        lanes = self._checksums % np.uint32(count)
        return {int(lane): np.flatnonzero(lanes == lane) for lane in np.unique(lanes)}

    def at(self, places: Places) -> list[pa.Array]:
        """The columns of some keys."""
        chosen = pa.array(places)
        return [column.take(chosen) for column in self.columns]

    def compared(self, place: int) -> tuple[Key | None, ...]:
        """One key, in the form in which statistics compare values."""
        values = [column[place] for column in self.columns]
        return tuple(key_of(value) if value.is_valid else None for value in values)


def one_key(log: str, fields: Sequence[pa.Field], key: Any) -> AskedKeys:
    """A value, or a tuple or mapping with one for each of several key columns; None is a key. Raises ConfigError."""
    values = _values(log, fields, key)
    return AskedKeys(tuple(_array(log, field, [value]) for field, value in zip(fields, values, strict=True)))


def many_keys(log: str, fields: Sequence[pa.Field], keys: Any) -> AskedKeys:
    """A sequence of such keys, or Arrow data with the key columns; of equal ones the first. Raises ConfigError."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        columns = _of_arrow(log, fields, _named(log, fields, keys))
    elif hasattr(keys, "__arrow_c_stream__") or isinstance(keys, pa.RecordBatch | pa.RecordBatchReader):
        columns = _of_arrow(log, fields, _table(log, keys))
    else:
        given = _listed(keys)
        _check_count(len(given))
        rows = [_values(log, fields, key) for key in given]
        columns = [_array(log, field, [row[place] for row in rows]) for place, field in enumerate(fields)]
    _check_count(len(columns[0]))
    places = first_places(columns)
    if len(places) == len(columns[0]):
        return AskedKeys(tuple(columns))
    return AskedKeys(tuple(column.take(pa.array(places)) for column in columns))


def _values(log: str, fields: Sequence[pa.Field], key: Any) -> Sequence[Any]:
    """One value for each key column."""
    names = [field.name for field in fields]
    if isinstance(key, Mapping):
        if set(key) != set(names):
            raise ConfigError("key", key, f"it must have a value for {_listing(names)}, the key of log '{log}', and no other")
        return [key[name] for name in names]
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(names):
        form = "a tuple, or a dict by name" if len(names) > 1 else "one value"
        raise ConfigError("key", key, f"it must be {form}, for {_listing(names)}, the key of log '{log}'")
    return values


def _array(log: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return array_of_values(field, values)
    except Unfit as unfit:
        remedy = f"log '{log}' has its key column '{field.name}' as {field.type}: {unfit.reason}"
        raise ConfigError("key", unfit.value, remedy) from None
    except REFUSED as problem:
        raise ConfigError("keys", len(values), f"together they are too large for Arrow ({problem}): give fewer") from None


def _listed(keys: Any) -> list[Any]:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise ConfigError("keys", keys, f"it must be {_FORMS}: get() looks a single key up")
    return list(keys)


def _check_count(count: int) -> None:
    if count > MAX_KEYS:
        raise ConfigError("the number of keys", count, f"one call takes {MAX_KEYS}: look the others up with further calls")


def _named(log: str, fields: Sequence[pa.Field], keys: pa.Array | pa.ChunkedArray) -> pa.Table:
    if len(fields) > 1:
        names = _listing([field.name for field in fields])
        raise ConfigError("keys", str(keys.type), f"log '{log}' has the key columns {names}: give a table with them")
    return pa.table([keys], names=[fields[0].name])


def _table(log: str, keys: Any) -> pa.Table:
    stream = stream_of(log, keys)
    found, rows = [], 0
    for batch in batches_of(log, stream):
        rows += batch.num_rows
        _check_count(rows)
        found.append(batch)
    return pa.Table.from_batches(found, schema=stream.schema)


def _of_arrow(log: str, fields: Sequence[pa.Field], given: pa.Table) -> list[pa.Array]:
    _check_count(given.num_rows)
    names = [field.name for field in fields]
    if sorted(given.column_names) != sorted(names):
        remedy = f"they must be {_listing(names)}, the key of log '{log}', and no other"
        raise ConfigError("the list of key columns", ",".join(given.column_names), remedy)
    table = given.select(names)
    conversion = Conversion(log, table.schema)
    parts = [conversion.of(batch) for batch in table.to_batches()]
    stored = pa.Table.from_batches(parts, schema=conversion.stored).combine_chunks()
    columns = (_one_array(column) for column in stored.columns)
    return [_cast(log, field, column) for field, column in zip(fields, columns, strict=True)]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.nulls(0, column.type)


def _cast(log: str, field: pa.Field, column: pa.Array) -> pa.Array:
    if not pa.types.is_null(column.type) and kind_of_key(column.type) != kind_of_key(field.type):
        remedy = f"log '{log}' has this key column as {field.type}, and no key of it is equal to another type's: cast it"
        raise ConfigError(f"key column '{field.name}'", str(column.type), remedy)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as problem:
        remedy = f"log '{log}' has this key column as {field.type} ({problem}): leave such keys out"
        raise ConfigError(f"key column '{field.name}'", str(column.type), remedy) from None


def _listing(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
