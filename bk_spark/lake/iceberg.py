"""A tier's table through its catalog, by pyiceberg. Nothing else of bk_spark imports it but ``rest.py``.

A change is staged in a transaction of pyiceberg's, and committed by one call of the catalog, with requirements of our own.
After a refusal a transaction makes the same change again on a newer table, which a tier must never do.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as of

from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, State, StorageError
from bk_spark.lake.columns import UnfitColumnError
from bk_spark.lake.partitions import Key, key_of
from bk_spark.lake.ports import TableChange, TableFile, TableState
from bk_spark.log.stored.tier_columns import LEDGER, PLACE
from bk_spark.log.stored.tier_mark import NO_STEP, StepName
from bk_spark.log.stored.tier_settings import BUCKET, PartitionField, Tier
from bk_spark.log.tier.file_rows import normal_type

try:
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import FileFormat, ManifestFile
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import (
        AssertCurrentSchemaId,
        AssertDefaultSpecId,
        AssertLastAssignedFieldId,
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        RemoveSnapshotsUpdate,
        SetSnapshotRefUpdate,
        TableRequirement,
        TableUpdate,
    )
    from pyiceberg.transforms import parse_transform
    from pyiceberg.typedef import Record
    from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

    from bk_spark.lake.rest import loaded
except ImportError as missing:
    raise ConfigError("pyiceberg", State("missing"), "a tier needs it: pip install 'bk-spark[iceberg]'") from missing

_LOG, _STEP = "bk-spark.log", "bk-spark.step"
"""Properties of the table."""

_TAG = "bk-spark-"
"""Tags of ours begin so; a version of the log and the number of a step follow."""

_FORMAT_VERSION = "2"
_PARTITION = 3
"""The place of the partition in what a manifest says of a file."""
_CATALOG_FILE = "_catalog.db"
"""It lies in the table's folder, where engines delete what no snapshot names, but no file whose name begins so."""
_NAMES = {
    pa.bool_(): ("boolean",),
    pa.int32(): ("int", "long"),
    pa.int64(): ("long",),
    pa.float32(): ("float", "double"),
    pa.float64(): ("double",),
    pa.string(): ("string",),
    pa.binary(): ("binary",),
    pa.date32(): ("date",),
    pa.time64("us"): ("time",),
    pa.timestamp("us"): ("timestamp",),
    pa.timestamp("us", "UTC"): ("timestamptz",),
}
"""Iceberg's types for a log's values: that of the same name first, then wider ones."""

_KEPT = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100"}
"""Of the table's own metadata files, one for each commit: as many as Iceberg keeps by default, and older ones are deleted."""

_FIELD_ID = b"PARQUET:field_id"
_MAIN = "main"
_TRIES = 10
"""To add columns: each further one means that somebody else changed the table's columns."""

_WITHOUT_COMPARE_AND_SET = ("hive", "dynamodb", "bigquery")
"""Kinds of catalogs: pyiceberg does not commit to them by a compare-and-set, or not at all."""


class IcebergTable:
    """The table of one log's tier. One thread uses it at a time."""

    def __init__(self, tier: Tier, log: str, uid: str) -> None:
        self._tier = tier
        self._log = log
        self._uid = uid
        self._catalog = self._opened()
        self._newest: Table | None = None
        """As it was last read."""

    def create(self, columns: pa.Schema) -> None:
        """Create the table, empty, if there is none of its name."""
        identifier = tuple(self._tier.table.split("."))
        with self._asked("creating"):
            self._catalog.create_namespace_if_not_exists(identifier[:-1])
            with suppress(TableAlreadyExistsError, CommitFailedException):  # also where somebody creates it at this moment
                self._create(identifier, columns)

    def _create(self, identifier: tuple[str, ...], columns: pa.Schema) -> None:
        made = self._catalog.create_table_transaction(identifier, columns, self._tier.location, properties=self._properties())
        with made as transaction, transaction.update_spec() as spec:
            for one in self._tier.partitions:
                spec.add_field(one.column, parse_transform(_transform(one)), f"{one.column}_{one.transform.rstrip('s')}")

    def look(self) -> TableState:
        """See ``TierTable``."""
        with self._asked("reading"):
            self._newest = table = self._catalog.load_table(self._tier.table)
            snapshot = _snapshot_of(table)
            ledger = self._ledger_column(table)
            files = [] if snapshot is None else [(task.file, task.delete_files) for task in table.scan().plan_files()]
            state = tuple(self._table_file(table, file, ledger) for file, _ in files)
        deleted = next((one.path for one, (_, deletes) in zip(state, files, strict=True) if deletes and one.has_log_rows), None)
        if deleted is not None:
            problem = f"somebody deleted rows of {deleted} by a delete file: roll the table back to the snapshot before"
            raise CorruptionError(f"table {self._tier.table}", problem)
        properties = table.properties
        step = self._step_in(properties[_STEP]) if _STEP in properties else NO_STEP
        return TableState(str(table.metadata.table_uuid), properties.get(_LOG), step, snapshot, state)

    def commit(self, base: TableState, change: TableChange) -> None:
        """See ``TierTable``."""
        with self._asked("committing to"):
            table = self._newest
            if table is None or _snapshot_of(table) != base.snapshot or str(table.metadata.table_uuid) != base.uuid:
                table = self._catalog.load_table(self._tier.table)
            self._check_writable(table, change)
            staged = table.transaction()
            known = {task.file.file_path: task.file for task in table.scan().plan_files()} if change.remove else {}
            summary = {"bk-spark.log": self._log, "bk-spark.step": str(change.step), "bk-spark.version": str(change.version)}
            if change.ledgers:
                summary["bk-spark.ledgers"] = f"{change.ledgers[0]} to {change.ledgers[-1]}"
            with staged.update_snapshot(snapshot_properties=summary).overwrite() as overwrite:
                for path in sorted(change.remove):
                    overwrite.delete_data_file(known[path])
                for added in change.add:
                    overwrite.append_data_file(self._fitting(table, added.path))
            staged.set_properties({_STEP: str(change.step)})
            required = (*_requirements(table), _at_snapshot(base.snapshot))
            tags = [_tag(base.snapshot, change)] if change.remove and base.snapshot is not None else []
            self._catalog.commit_table(table, required, (*_updates(staged), *tags))

    def is_expired(self, before_ms: int, version: int) -> bool:
        """See ``TierTable``."""
        with self._asked("reading"):
            return bool(_expiry(self._catalog.load_table(self._tier.table).metadata, before_ms, version))

    def expire(self, before_ms: int, version: int) -> None:
        """See ``TierTable``."""
        for left in reversed(range(_TRIES)):
            with self._asked("reading"):
                table = self._catalog.load_table(self._tier.table)
                change = _expiry(table.metadata, before_ms, version)
                if not change:
                    return
                files = _metadata_files(table)
            required = (*_requirements(table), *_refs_stay(table.metadata))
            with self._asked("expiring snapshots of"):
                try:
                    self._catalog.commit_table(table, required, change)
                except CommitFailedException:
                    if not left:
                        raise
                    continue
                self._delete_unnamed(files)
                return

    def paths(self) -> frozenset[str]:
        """See ``TierTable``."""
        with self._asked("reading"):
            table = self._catalog.load_table(self._tier.table)
            entries = (entry for one in _manifests(table).values() for entry in one.fetch_manifest_entry(table.io))
            return frozenset(entry.data_file.file_path for entry in entries)

    def _delete_unnamed(self, before: frozenset[str]) -> None:
        """The manifests of snapshots that are gone now. A failure leaves small files behind, which nobody needs."""
        table = self._catalog.load_table(self._tier.table)
        for path in sorted(before - _metadata_files(table)):
            table.io.delete(path)

    def drop(self) -> None:
        """Out of the catalog, with all its files. Nothing happens if it is not there."""
        with self._asked("dropping"), suppress(NoSuchTableError):
            self._catalog.purge_table(self._tier.table)

    def owner(self) -> str | None:
        """The log whose tier the table is, empty for nobody's; None if it is not there."""
        with self._asked("reading"), suppress(NoSuchTableError):
            return str(self._catalog.load_table(self._tier.table).properties.get(_LOG, ""))
        return None

    def unfit(self, paths: Iterable[str]) -> list[str]:
        """See ``TierTable``."""
        with self._asked("reading"):
            table = self._catalog.load_table(self._tier.table)
            return [path for path in paths if not _fits(table, path)]

    def identified(self, columns: pa.Schema) -> pa.Schema:
        """The columns with the ids that the table gives them. The table gets those that it lacks, and wider types."""
        for _ in range(_TRIES):
            with self._asked("reading"):
                table = self._catalog.load_table(self._tier.table)
            with suppress(_NarrowerError):
                return _with_ids(columns, table.schema())
            self._check_none_was_dropped(columns, table)
            with suppress(StorageError), self._asked("adding columns to"):
                staged = table.transaction()
                with staged.update_schema() as update:
                    update.union_by_name(columns)
                self._catalog.commit_table(table, _requirements(table), _updates(staged))
        raise StorageError(f"adding columns to table {self._tier.table}", f"{_TRIES} tries were refused, or met other changes")

    def _check_none_was_dropped(self, columns: pa.Schema, table: Table) -> None:
        """A column that is added again gets another id, and the rows from before would be null in it."""
        now = set(table.schema().column_names)
        before = {name for schema in table.metadata.schemas for name in (field.name for field in schema.fields)} - now
        dropped = next((name for name in columns.names if name in before), None)
        if dropped is not None:
            remedy = "somebody dropped or renamed it: roll the table's schema back to the one before"
            raise UnfitColumnError(f"column '{dropped}' of a tier's table", State("missing"), remedy)

    def _ledger_column(self, table: Table) -> int:
        lacking = [name for name in PLACE if name not in table.schema().column_names]
        if table.properties.get(_LOG) is None or lacking:
            problem = f"it has no column {lacking[0]}" if lacking else "it is no log's"
            raise ConfigError(
                "the table of a tier", self._tier.table, f"{problem}: a table has the rows of one log, give another"
            )
        return table.schema().find_field(LEDGER).field_id

    def _table_file(self, table: Table, file: IcebergFile, ledger: int) -> TableFile:
        """Without counts of its ``_ledger_id`` a file may have rows of either kind, unless it has no such column."""
        has_log_rows = has_other_rows = True
        nulls = (file.null_value_counts or {}).get(ledger)
        if nulls is not None:
            has_log_rows, has_other_rows = nulls < file.record_count, nulls > 0
        elif file.file_format == FileFormat.PARQUET:
            with table.io.new_input(file.file_path).open() as opened:
                has_log_rows = LEDGER in pq.read_schema(opened).names
        return TableFile(file.file_path, file.file_size_in_bytes, has_log_rows, has_other_rows)

    def _opened(self) -> Catalog:
        given = dict(self._tier.catalog)
        kind = given.get("type", "").lower()
        if kind in _WITHOUT_COMPARE_AND_SET:
            remedy = "a tier needs a catalog that commits by compare-and-set: sql, rest or glue"
            raise ConfigError("the type of a tier's catalog", kind, remedy)
        if "type" not in given and "uri" not in given:
            scheme, _, path = self._tier.location.partition("://")
            if scheme != "file":
                remedy = f"at {self._tier.location} no catalog can be a file: name one, such as type=rest and uri=http://…"
                raise ConfigError("the catalog of a tier", State("missing"), remedy)
            given |= {"type": "sql", "uri": f"sqlite:///{path}/{_CATALOG_FILE}"}
        with self._asked("opening the catalog of"):
            if given.get("type") == "sql" and given["uri"].startswith("sqlite:///"):
                Path(given["uri"].removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            name = given.pop("name", "default")
            return loaded(name, {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", **given})

    def _properties(self) -> dict[str, str]:
        metrics = {f"write.metadata.metrics.column.{name}": "full" for name in PLACE}
        return {
            _LOG: self._uid,
            "format-version": _FORMAT_VERSION,
            "write.parquet.compression-codec": "zstd",
            **_KEPT,
            **metrics,
        }

    def _step_in(self, text: str) -> StepName:
        try:
            return StepName.parse(text)
        except ValueError:
            remedy = "somebody changed it: roll the table back to the snapshot before"
            raise ConfigError(f"property {_STEP} of table {self._tier.table}", text[:200], remedy) from None

    def _check_writable(self, table: Table, change: TableChange) -> None:
        """Raises ConfigError for what somebody made of the table, and a commit could only get wrong."""
        if str(table.format_version) != _FORMAT_VERSION:
            remedy = f"somebody upgraded it, and pyiceberg writes {_FORMAT_VERSION} alone: bring the table of before back"
            raise ConfigError(f"the format version of table {self._tier.table}", table.format_version, remedy)
        wanted = [(one.column, _transform(one)) for one in self._tier.partitions]
        found = [(table.schema().find_column_name(one.source_id), str(one.transform)) for one in table.spec().fields]
        if change.add and found != wanted:
            own = ", ".join(self._tier.partition) or "no partition"
            remedy = f"somebody changed it, and files of the tier have {own}: set it back"
            raise ConfigError(f"the partitioning of table {self._tier.table}", str(table.spec()), remedy)

    def _fitting(self, table: Table, path: str) -> IcebergFile:
        """As the table is to list it. Raises CorruptionError where its columns are not the table's."""
        if not _fits(table, path):
            problem = f"its columns have not the ids that those of table {self._tier.table} have: the table was set back"
            raise CorruptionError(f"file {path}", problem)
        spec = table.spec()
        plain = table.metadata.model_copy(update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0})
        try:
            listed = parquet_file_to_data_file(table.io, plain, path)
        except (OverflowError, ValueError):  # bounds beyond Python's dates: such columns are listed without
            fewer = {**table.properties, "write.metadata.metrics.default": "counts"}
            listed = parquet_file_to_data_file(table.io, plain.model_copy(update={"properties": fewer}), path)
        if spec.is_unpartitioned():
            return listed
        listed[_PARTITION] = Record(*self._partition_of(table, path))
        listed.spec_id = spec.spec_id
        return listed

    def _partition_of(self, table: Table, path: str) -> Key:
        """By its first row: all of them are in one. pyiceberg takes 0 and empty texts for nulls."""
        with table.io.new_input(path).open() as opened:
            wanted = {one.column for one in self._tier.partitions}
            file = pq.ParquetFile(opened)
            rows = file.iter_batches(1, columns=[name for name in file.schema_arrow.names if name in wanted or name == LEDGER])
            first = next(rows, None)
        return (None,) * len(self._tier.partitions) if first is None else key_of(first, self._tier.partitions)

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """pyiceberg raises what its parts do: SQLAlchemy, requests, pyarrow. What became of the request is unknown."""
        try:
            yield
        except BookKeeperError:
            raise
        except NoSuchTableError:
            state = State(f"missing from the catalog ({self._tier.table})")
            remedy = "it was dropped, or the catalog is another one: bring the table, or the catalog, back"
            raise ConfigError(f"the table of log '{self._log}'", state, remedy) from None
        except Exception as problem:
            raise StorageError(f"{what} table {self._tier.table}", f"{type(problem).__name__}: {problem}") from problem


def _snapshot_of(table: Table) -> int | None:
    found = table.current_snapshot()
    return None if found is None else found.snapshot_id


def _transform(partition: PartitionField) -> str:
    """As Iceberg calls it."""
    return f"bucket[{partition.count}]" if partition.transform == BUCKET else partition.transform.rstrip("s")


def _at_snapshot(snapshot: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": _MAIN, "snapshot-id": snapshot})


def _tag(snapshot: int, change: TableChange) -> TableUpdate:
    name = f"{_TAG}{change.version}-{change.step.number}"
    of_age = {"type": "tag", "max-ref-age-ms": 2**63 - 1}  # whatever the table's properties say of other tags
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "snapshot-id": snapshot, **of_age})


def _expiry(metadata: TableMetadata, before_ms: int, version: int) -> tuple[TableUpdate, ...]:
    """What drops our tags of versions up to ``version``, and old snapshots without a name."""
    own = {name: name.removeprefix(_TAG).partition("-")[0] for name in metadata.refs if name.startswith(_TAG)}
    left_ms = _left_ms(metadata)
    tags = [name for name, number in own.items() if number.isdecimal() and int(number) <= version]
    named = {ref.snapshot_id for name, ref in metadata.refs.items() if name not in tags} | {metadata.current_snapshot_id}
    old = [one for one, at_ms in left_ms.items() if at_ms < before_ms and one not in named]
    dropped = (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in tags)
    return (*dropped, *([RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old})] if old else []))


def _left_ms(metadata: TableMetadata) -> dict[int, int]:
    """When each snapshot was the newest one for the last time; when it was made, if it never was."""
    made = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    left = {one.snapshot_id: later.timestamp_ms for one, later in itertools.pairwise(metadata.snapshot_log)}
    return {one: left.get(one, at_ms) for one, at_ms in made.items()}


def _refs_stay(metadata: TableMetadata) -> Iterator[TableRequirement]:
    """That branches and tags are where they were: with a snapshot its names go. What is set meanwhile is not seen."""
    for name, ref in metadata.refs.items():
        yield AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})


def _manifests(table: Table) -> dict[str, ManifestFile]:
    """Those of all snapshots, by path."""
    return {one.manifest_path: one for snapshot in table.metadata.snapshots for one in snapshot.manifests(table.io)}


def _metadata_files(table: Table) -> frozenset[str]:
    """What snapshots consist of, but for their data files."""
    return frozenset((*_manifests(table), *(one.manifest_list for one in table.metadata.snapshots)))


def _requirements(table: Table) -> tuple[TableRequirement, ...]:
    """That the table is the same, and its columns and partitions are as they were when it was read."""
    metadata = table.metadata
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )


def _updates(staged: Transaction) -> tuple[TableUpdate, ...]:
    return staged._updates


def _fits(table: Table, path: str) -> bool:
    """Whether the columns of a file have the ids that the table's have: then every engine finds them."""
    with table.io.new_input(path).open() as opened:
        found = pq.read_schema(opened)
    columns = pa.schema([pa.field(one.name, normal_type(one.type), one.nullable, one.metadata) for one in found])
    try:
        return _ids(_with_ids(columns, table.schema())) == _ids(columns)
    except (_NarrowerError, UnfitColumnError):
        return False


class _NarrowerError(Exception):
    """The table lacks a column, or has it with a narrower type that Iceberg can widen."""


def _with_ids(columns: pa.Schema, schema: Schema) -> pa.Schema:
    """Raises _NarrowerError, and ConfigError where the table can never hold the columns."""
    known = {field.name: field for field in schema.fields}
    return pa.schema([_with_id(one, known.get(one.name), one.name) for one in columns])


def _with_id(field: pa.Field, own: NestedField | None, place: str) -> pa.Field:
    if own is None:
        raise _NarrowerError
    kind = _typed(field.type, own.field_type, place)
    return pa.field(field.name, kind, field.nullable, {_FIELD_ID: str(own.field_id).encode()})


def _typed(kind: pa.DataType, own: IcebergType, place: str) -> pa.DataType:
    """``kind`` with the ids of the fields inside of it. ``place`` is like ``visits.element.page``."""
    if of.is_list(kind) and isinstance(own, ListType):
        return pa.list_(_with_id(pa.field("element", kind.value_type), own.element_field, f"{place}.element"))
    if of.is_map(kind) and isinstance(own, MapType):
        key = _with_id(pa.field("key", kind.key_type, nullable=False), own.key_field, f"{place}.key")
        return pa.map_(key, _with_id(pa.field("value", kind.item_type), own.value_field, f"{place}.value"))
    if of.is_struct(kind) and isinstance(own, StructType):
        known = {field.name: field for field in own.fields}
        return pa.struct([_with_id(field, known.get(field.name), f"{place}.{field.name}") for field in kind])
    if _holds(own, kind):
        return kind
    if _can_become(own, kind):
        raise _NarrowerError
    remedy = "Iceberg cannot change the one to the other: overwrite the log with columns of the table's types"
    raise UnfitColumnError(f"column '{place}' of a tier's table", State(f"{own}, and {kind} in the log"), remedy)


def _ids(fields: Iterable[pa.Field], place: str = "") -> dict[str, bytes | None]:
    """The id of each column, and of what is inside of it, by its place."""
    found: dict[str, bytes | None] = {}
    for field in fields:
        here = f"{place}.{field.name}"
        inside = (field.type.key_field, field.type.item_field) if of.is_map(field.type) else _children(field.type)
        found |= {here: (field.metadata or {}).get(_FIELD_ID), **_ids(inside, here)}
    return found


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(place) for place in range(kind.num_fields)]


def _holds(own: IcebergType, kind: pa.DataType) -> bool:
    if of.is_decimal128(kind):
        return isinstance(own, DecimalType) and own.scale == kind.scale and own.precision >= kind.precision
    return str(own) in _NAMES.get(kind, ())


def _can_become(own: IcebergType, kind: pa.DataType) -> bool:
    if of.is_decimal128(kind):
        return isinstance(own, DecimalType) and own.scale == kind.scale
    return (str(own), *_NAMES.get(kind, ("",))[:1]) in (("int", "long"), ("float", "double"))
