"""The rows of ledgers in one Parquet file of a tier.

A file has the rows of its ledgers one after the other, in the log's order, unless others wrote it. Row groups whose statistics
show that they have no row of a ledger, or none that a condition matches, are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from bk_spark.errors import CorruptionError, StorageError
from bk_spark.files.file_store import FileStore
from bk_spark.log.stored.tier_columns import ENTRY, LEDGER, PLACE
from bk_spark.log.stored.tier_records import DataFile
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.kept_footers import KeptFooters
from bk_spark.log.tier.kept_group import keeping, kept
from bk_spark.rows.statistics import ColumnStatistics, key_of, kind_of

IN_ORDER = b"bk-spark.order"
"""In the metadata of a file: its rows are in the log's order. Whoever else writes a file does not say so."""

MAX_ENTRY = 2**63 - 1

BATCH_ROWS = 65_536
"""Of a row group in memory at a time."""


class TierFile:
    """One file, opened. One thread uses it at a time.

    Its footer is taken from ``footers`` if it is there. Raises CorruptionError where the file is gone, or is no such file;
    StorageError where its store does not answer.
    """

    def __init__(self, store: FileStore, file: DataFile, footers: KeptFooters | None = None) -> None:
        self.what = f"file {file.path} of a tier"
        self._key: tuple[str | int, ...] = (file.path, file.size)
        footers, at = footers or KeptFooters(), (store, file.path, file.size)
        with self._understood():
            self._file = pq.ParquetFile(store.open_input(file.path), metadata=footers.get(at), pre_buffer=True)
            self._metadata = self._file.metadata
            footers.put(at, self._metadata)
            self.schema = pa.schema([_normal_field(one) for one in self._file.schema_arrow])
            """The columns as they are given."""
            leaves = self._metadata.schema
            self._leaves = {leaves.column(index).path: index for index in range(len(leaves))}
            """Where the columns are that are not nested: there a column's path is its name."""
        lacking = [name for name in PLACE if self.schema.get_field_index(name) < 0]
        if lacking:
            raise CorruptionError(self.what, f"it has no column {lacking[0]}")

    @property
    def is_in_order(self) -> bool:
        return IN_ORDER in (self._metadata.metadata or {})

    @property
    def groups(self) -> int:
        """How many row groups it has."""
        return int(self._metadata.num_row_groups)

    def groups_of(self, ledger_id: int, first: int, last: int) -> list[int]:
        """The row groups that may have rows of these entries, in the order of the file."""
        return [group for group in range(self.groups) if self._may_have(group, ledger_id, first, last)]

    def row_bytes(self, groups: Sequence[int]) -> float:
        """Of a row of these row groups, on average, before compression."""
        found = [self._metadata.row_group(group) for group in groups]
        return float(sum(one.total_byte_size for one in found) / max(1, sum(one.num_rows for one in found)))

    def entries_of(self, ledger_id: int) -> tuple[int, int] | None:
        """The first and the last entry that it has rows of, inclusive; None unless the ledger is alone in its row groups."""
        groups = [group for group in range(self.groups) if self._may_have(group, ledger_id, 0, MAX_ENTRY)]
        found = [self._bounds(group, ENTRY) for group in groups if self._bounds(group, LEDGER) == (ledger_id, ledger_id)]
        known = [one for one in found if one is not None]
        if not groups or len(known) < len(groups):
            return None
        return min(first for first, _ in known), max(last for _, last in known)

    def matching(self, groups: Sequence[int], asked: AskedRows) -> list[int]:
        """Those of the row groups in which a row can match the reader's condition."""
        if asked.where is None:
            return list(groups)
        fields = {one.name: one for one in asked.where.columns}
        known = {group: {name: self._statistics(group, name, one) for name, one in fields.items()} for group in groups}
        return [
            group
            for group, found in known.items()
            if asked.where.may_match(
                self._metadata.row_group(group).num_rows, {name: one for name, one in found.items() if one is not None}
            )
        ]

    def batches(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of row groups: some columns, as far as the file has them."""
        present = [name for name in columns if self.schema.get_field_index(name) >= 0]
        with self._understood():
            if groups:
                for batch in self._file.iter_batches(BATCH_ROWS, list(groups), present, use_threads=False):
                    yield _normal(batch)

    def is_shared(self, group: int) -> bool:
        """Whether several ledgers have rows in a row group."""
        ledgers = self._bounds(group, LEDGER)
        return ledgers is None or ledgers[0] != ledgers[1]

    def shared(self, group: int, ledger_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a ledger in a row group of several. A thread that asks for one after the other decodes it once."""
        key = (*self._key, group, *columns)
        found = kept(key)
        if found is not None:
            return iter(found.rows.get(ledger_id, ()))
        return keeping(key, self.batches([group], columns), ledger_id)

    def all_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows and columns."""
        yield from self.batches(range(self.groups), self.schema.names)

    def close(self) -> None:
        self._file.close(force=True)

    def _may_have(self, group: int, ledger_id: int, first: int, last: int) -> bool:
        ledgers, entries = self._bounds(group, LEDGER), self._bounds(group, ENTRY)
        if ledgers is not None and not ledgers[0] <= ledger_id <= ledgers[1]:
            return False
        is_alone = ledgers is not None and ledgers[0] == ledgers[1]
        return not is_alone or entries is None or (entries[0] <= last and first <= entries[1])

    def _bounds(self, group: int, name: str) -> tuple[int, int] | None:
        known = self._leaf(group, name)
        found = None if known is None else known.statistics
        return (int(found.min), int(found.max)) if found is not None and found.has_min_max else None

    def _statistics(self, group: int, name: str, wanted: pa.Field) -> ColumnStatistics | None:
        rows = self._metadata.row_group(group).num_rows
        place = self.schema.get_field_index(name)
        if place < 0:
            return ColumnStatistics(rows)
        known, kind = self._leaf(group, name), self.schema.field(place).type
        found = None if known is None else known.statistics
        if found is None or not found.has_null_count or kind_of(kind) is None or kind_of(wanted.type) is None:
            return None
        if not found.has_min_max:
            return ColumnStatistics(rows) if found.null_count == rows else None
        try:
            low, high = (key_of(pa.scalar(one, kind).cast(wanted.type)) for one in (found.min, found.max))
        except (pa.ArrowException, ValueError, OverflowError):
            return None
        return ColumnStatistics(found.null_count, low, high, has_nan=pa.types.is_floating(kind))

    def _leaf(self, group: int, name: str) -> pq.ColumnChunkMetaData | None:
        """A column that is not nested."""
        index = self._leaves.get(name)
        return None if index is None else self._metadata.row_group(group).column(index)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise StorageError(f"reading {self.what}", str(problem)) from problem
        except (pa.ArrowException, EOFError) as problem:
            raise CorruptionError(self.what, f"it is no such Parquet file ({problem})") from None


def _normal(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Others write texts and lists with long offsets, views, dictionaries, and UTC under other names."""
    fields = [_normal_field(one) for one in batch.schema]
    if all(one.type.equals(other.type) for one, other in zip(fields, batch.schema, strict=True)):
        return batch
    columns = [column.cast(one.type) for column, one in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The form of a type that files of ours have."""
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_normal_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_normal_field(kind.key_field), _normal_field(kind.item_field))
    return pa.struct([_normal_field(field) for field in kind]) if pa.types.is_struct(kind) else kind


def _normal_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, normal_type(field.type), field.nullable, field.metadata)
