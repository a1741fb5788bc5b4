"""How the columns of a tier's Parquet files are encoded, as their first rows suggest.

Parquet's default, a dictionary for each column, costs half of the time of a write where most values differ, and makes the file
larger. Whole numbers that differ are stored as differences: ids and times grow from row to row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

SAMPLE_ROWS = 8192
_MOST_DISTINCT = 0.5
"""Of a sample's values: with more, a dictionary is larger than what it saves."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """Arguments of a Parquet writer, by the paths of leaf columns."""

    use_dictionary: list[str] = field(default_factory=list)
    column_encoding: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(rows: pa.Table) -> Encodings:
        """By the first rows of a file."""
        found = Encodings()
        sample = rows.slice(0, SAMPLE_ROWS).combine_chunks()
        for name, column in zip(sample.column_names, sample.columns, strict=True):
            for path, leaf in _leaves(name, pa.concat_arrays(column.chunks) if column.num_chunks else column):
                if _repeats(leaf):
                    found.use_dictionary.append(path)
                elif of.is_int32(leaf.type) or of.is_int64(leaf.type) or of.is_timestamp(leaf.type):
                    found.column_encoding[path] = "DELTA_BINARY_PACKED"
        return found


def _repeats(leaf: pa.Array) -> bool:
    """A column of nulls alone, and one of two values, has nothing to gain."""
    values = len(leaf) - leaf.null_count
    return values > 0 and not of.is_boolean(leaf.type) and len(pc.unique(leaf)) <= _MOST_DISTINCT * values


def _leaves(path: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The columns that Parquet has for one of Arrow."""
    kind = column.type
    if of.is_struct(kind):
        for place, one in enumerate(kind):
            yield from _leaves(f"{path}.{one.name}", column.field(place))
    elif of.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", column.keys)
        yield from _leaves(f"{path}.key_value.value", column.items)
    elif of.is_list(kind):
        yield from _leaves(f"{path}.list.element", pc.list_flatten(column))
    else:
        yield path, column
