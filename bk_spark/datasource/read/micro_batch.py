"""A micro-batch between two offsets: the driver plans its portions, the tasks read them.

A stream keeps the columns that it was started with for its whole life. Entries of earlier or later schemas are read by
column name, and so are the fields of structs: missing ones are null, additional ones are left out. Narrower types are widened.
Where a type became wider than the stream's, where an overwrite changed the type of a column, or replaced rows by entries, the
batch fails before its tasks run.

Ref: docs/rules.md, log rules 6 and 10.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.datasource.connection import connect
from bk_spark.datasource.read.batch_limits import StoredSizes
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.partitions import cut_large, plan
from bk_spark.datasource.read.read_task import Reading, Sources
from bk_spark.datasource.spark_schema import METADATA_COLUMNS, as_stored, to_arrow
from bk_spark.errors import ConfigError, DataLossError, NoSuchLedgerError, SchemaMismatchError
from bk_spark.log.stored.origins import origins
from bk_spark.log.stored.values import Content
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.rows.widening import is_readable

FEW_ENTRIES = 64
"""Up to this many entries of an open ledger are one portion, whatever their size; above it their bytes are looked up."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MicroBatchPortion:
    """What one task reads of a micro-batch, and the place of each ledger in the log, in case the ledger is gone."""

    stretches: tuple[Stretch, ...]
    places: Mapping[int, tuple[int, int | None]]
    """Ledger id → the version that added it, and the row number behind its last row (None: it was open)."""
    sources: Sources


class BatchPlanner:
    """Plans micro-batches of one stream from offsets alone."""

    def __init__(self, log: FollowedLog, reading: Reading) -> None:
        self._log = log
        self._reading = reading
        self._columns = _columns(reading)
        self._checked: set[int] = set()

    def portions(self, start: StreamPosition, end: StreamPosition, logs: int = 1) -> list[MicroBatchPortion]:
        """The portions between two positions, in stream order. ``logs`` share ``minPartitions``.

        Raises DataLossError, LogReplacedError, SchemaMismatchError, ConfigError.
        """
        options = self._reading.options
        fail, follower = options.fail_on_data_loss, self._log.follower
        wanted = self._reading.lanes_of(self._log.name)
        placed_stretches = self._log.planned(
            self._log.head_with(end),
            lambda head: list(follower.stretches(start, end, head, fail_on_data_loss=fail, lanes_of=wanted)),
        )
        for placed in placed_stretches:
            self._check_columns(placed)
        placed_stretches = [part for placed in placed_stretches for part in _by_lane(placed)]
        stretches = [self._stretch(placed) for placed in placed_stretches]
        sources = self._sources(placed_stretches)
        # The entries of a span are row numbers, and have no fragments.
        stretches = cut_large(
            stretches, options.max_bytes_per_partition, lambda ids: self._log.describe([*set(ids) - sources.spans.keys()])
        )
        planned = plan(stretches, options.max_bytes_per_partition, -(-options.min_partitions // logs))
        places = {one: (placed.version, placed.end_row) for placed in placed_stretches for one in placed.ledger_ids}
        found = ((portion, sources.only(portion)) for portion in planned)
        return [
            MicroBatchPortion(portion, {one: places[one] for one in own.ledgers_of(portion)}, own) for portion, own in found
        ]

    def _sources(self, placed_stretches: Sequence[PlacedStretch]) -> Sources:
        log = self._log
        if not placed_stretches:
            return Sources(log.name, log.uid)
        ids = {one for placed in placed_stretches for one in placed.ledger_ids}
        head = log.logs.names.head(log.name, log.uid)
        places = log.logs.reader.tier.released(log.name, log.uid, head.tier, ids)
        spans = {placed.ledger_id: placed.span for placed in placed_stretches if placed.span is not None}
        if not self._reading.asks_origins:
            return Sources(log.name, log.uid, places=places, spans=spans)
        last = placed_stretches[-1].version  # the version that a stretch belongs to may list a ledger that an earlier one added
        found = log.planned(head, lambda head: origins(log.logs.reader, head, log.uid, ids, last))
        return Sources(log.name, log.uid, found, places, spans)

    def _stretch(self, placed: PlacedStretch) -> Stretch:
        nbytes = placed.nbytes
        if placed.end_row is None and placed.entries > FEW_ENTRIES:
            sizes = StoredSizes(self._log.opener)
            before = sizes.length_up_to(placed.ledger_id, placed.first_entry_id - 1)
            nbytes = sizes.length_up_to(placed.ledger_id, placed.last_entry_id) - before
        return Stretch(placed.ledger_id, placed.first_entry_id, placed.last_entry_id, nbytes)

    def _check_columns(self, placed: PlacedStretch) -> None:
        log = self._log
        if self._reading.options.reads_entries and placed.span is not None:
            remedy = "what it reads next was compacted by key, and its entries are not those of the log any more: read rows"
            raise ConfigError("option 'content'", self._reading.options.content, f"log '{log.name}': {remedy}")
        if self._reading.options.reads_entries:
            return  # payloads are read as they are, of either content
        if placed.content is Content.ENTRIES:
            problem = f"version {placed.version} holds entries, the stream reads rows"
            remedy = "set option 'content' to entries in a new query, with a new checkpoint"
            raise SchemaMismatchError(log.name, f"{problem}: {remedy}")
        if placed.schema_id is None or placed.schema_id in self._checked:
            return
        stored = to_arrow(StructType.fromJson(log.logs.reader.schema(log.name, log.uid, placed.schema_id)))
        for name, kind in self._columns.items():
            if name in stored.names and not is_readable(stored.field(name).type, kind):
                here = stored.field(name).type
                problem = f"column '{name}' is {here} in version {placed.version}, the stream reads {kind}"
                is_wider = is_readable(kind, here)
                remedy = "restart the query, which then reads it so" if is_wider else "start a new query, with a new checkpoint"
                raise SchemaMismatchError(log.name, f"{problem}: {remedy}")
        self._checked.add(placed.schema_id)


def _by_lane(placed: PlacedStretch) -> list[PlacedStretch]:
    """The lanes of a span, which tasks read by themselves; any other stretch as it is."""
    if placed.span is None:
        return [placed]
    total = max(1, sum(one.length for one in placed.span.ledgers))
    return [
        replace(
            placed,
            ledger_id=lane.ledgers[0].ledger_id,
            nbytes=placed.nbytes * sum(one.length for one in lane.ledgers) // total,
            span=lane,
        )
        for lane in placed.span.by_lane
    ]


def read_portion(portion: MicroBatchPortion, reading: Reading, name: str, uid: str) -> Iterator[pa.RecordBatch]:
    """The rows of one portion, in stream order.

    A ledger that is gone is an error, except where truncation removed its rows and ``failOnDataLoss`` is false.
    """
    groups = [portion.stretches] if reading.options.fail_on_data_loss else [(stretch,) for stretch in portion.stretches]
    for group in groups:
        try:
            yield from reading.batches(group, portion.sources)
        except NoSuchLedgerError as gone:
            _check_truncated(gone, portion.places[gone.ledger_id], reading, name, uid)


def _check_truncated(gone: NoSuchLedgerError, place: tuple[int, int | None], reading: Reading, name: str, uid: str) -> None:
    version, end_row = place
    head = connect(reading.options.metadata, reading.options.client).logs.names.fresh_head(name, uid)
    if version < head.replaced_version or end_row is None or end_row > head.first_row:
        raise gone
    loss = DataLossError(name, f"ledger {gone.ledger_id} of version {version} was truncated and is deleted")
    if reading.options.fail_on_data_loss:
        raise loss from None
    logger.warning("%s", loss.warning)


def _columns(reading: Reading) -> dict[str, pa.DataType]:
    """The columns to decode from entries: the selected ones and those that ``where`` compares."""
    added = METADATA_COLUMNS.names if reading.options.include_metadata else []
    columns = {field.name: field.type for field in as_stored(reading.schema) if field.name not in added}
    if reading.where is not None:
        columns.update({field.name: field.type for field in reading.where.columns})
    return columns
