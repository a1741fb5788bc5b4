"""The work of a read task, of a batch or of a stream: stretches of ledgers → Arrow record batches in the declared schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.stretches import Stretch
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import ORIGIN_COLUMNS, as_stored, to_arrow
from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.rows.key_lanes import LaneChoice
from bk_spark.log.rows.latest.view import LatestRows
from bk_spark.log.spans.span_handle import SpanHandle
from bk_spark.log.stored.by_key.spans import LedgerSpan
from bk_spark.log.stored.origins import Origin
from bk_spark.log.stored.tier_places import TieredPlace
from bk_spark.log.stream.follow import LanesOf
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.not_null import declared, null_place
from bk_spark.rows.reading import Added, Converter, constant, joined
from bk_spark.rows.where.filter import RowFilter


@dataclass(frozen=True, slots=True)
class Sources:
    """What the columns of ``includeMetadata`` tell about the ledgers of one log."""

    log: str
    uid: str
    origins: Mapping[int, Origin] = field(default_factory=dict)
    """Ledger id → where it came into the log. Empty where no column asks for it; without ledgers for which it is not known."""
    places: Mapping[int, TieredPlace] = field(default_factory=dict)
    """Of ledgers that may be gone from bookies."""
    spans: Mapping[int, LedgerSpan] = field(default_factory=dict)
    """Those that a stream reads, by the ledger id of their stretches."""

    def only(self, stretches: Iterable[Stretch]) -> Sources:
        """What is needed of it for these stretches."""
        ids = {stretch.ledger_id for stretch in stretches}
        spans = {one: span for one, span in self.spans.items() if one in ids}
        ids = self.ledgers_of(stretches)
        origins = {one: origin for one, origin in self.origins.items() if one in ids}
        places = {one: place for one, place in self.places.items() if one in ids}
        return Sources(self.log, self.uid, origins, places, spans)

    def ledgers_of(self, stretches: Iterable[Stretch]) -> set[int]:
        """The ledgers in which these stretches lie."""
        ids = set[int]()
        for stretch in stretches:
            span = self.spans.get(stretch.ledger_id)
            ids |= {stretch.ledger_id} if span is None else {one.ledger_id for one in span.ledgers}
        return ids

    def columns(self) -> Added:
        """The value of each of the columns for an entry."""
        return {
            "_ledger_id": lambda ledger_id, _entry_id: ledger_id,
            "_entry_id": lambda _ledger_id, entry_id: entry_id,
            "_log": lambda _ledger_id, _entry_id: self.log,
            "_version": lambda ledger_id, _entry_id: self._version(ledger_id),
            "_commit_timestamp": lambda ledger_id, _entry_id: self._time_us(ledger_id),
        }

    def _version(self, ledger_id: int) -> int | None:
        origin = self.origins.get(ledger_id)
        return None if origin is None else origin.version

    def _time_us(self, ledger_id: int) -> int | None:
        origin = self.origins.get(ledger_id)
        return None if origin is None or origin.time_ms is None else origin.time_ms * 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """Which columns and rows to give of the entries that are read, not which entries. Pickled to every task.

    ``schema`` has the columns to give; ``where`` is None for all rows.
    """

    options: SourceOptions
    schema: StructType
    where: RowFilter | None = None
    checks_values: bool = True
    """False for who copies rows, whatever their values are."""
    latest: LatestRows | None = None
    """How to choose the newest row of each key; None for all rows."""

    @property
    def lanes(self) -> LaneChoice:
        """Which lanes of a log can hold such rows."""
        return LaneChoice(self.options.lane, self.where)

    def lanes_of(self, log: str) -> LanesOf:
        """The same for each version of a log, as its stream is planned."""
        return lambda version: self.lanes.of(log, version.version, version.lanes)

    @property
    def asks_origins(self) -> bool:
        """Whether a column to give tells where a ledger came into its log."""
        return self.options.include_metadata and not ORIGIN_COLUMNS.isdisjoint(self.schema.names)

    def batches(self, stretches: Iterable[Stretch], sources: Sources | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the stretches, in order, in exactly the declared schema and in batches of about BATCH_BYTES.

        ``sources`` is needed only for the columns that ``includeMetadata`` adds.
        """
        return joined(self._converted(stretches, sources))

    def _converted(self, stretches: Iterable[Stretch], sources: Sources | None) -> Iterator[pa.RecordBatch]:
        options = self.options
        bookkeeper = connect(options.metadata, options.client)
        schema, stored = to_arrow(self.schema), as_stored(self.schema)
        opener = opener_of(bookkeeper, options, sources)
        added = sources.columns() if options.include_metadata and sources else {}
        asked = AskedRows(stored, self.where, added, self.checks_values)
        convert = entries_as(stored) if options.reads_entries else asked.of_entries()
        spans = sources.spans if sources else {}
        for stretch in stretches:
            place, span = (stretch.first_entry_id, stretch.last_entry_id), spans.get(stretch.ledger_id)
            if span is not None:
                given = SpanHandle(span, opener.on_bookies).rows(*place, asked)
            elif options.reads_entries:
                given = opener.entries(opener(stretch.ledger_id), *place, convert)
            else:
                given = opener.rows(opener(stretch.ledger_id), *place, asked, convert)
            for rows in given:
                yield as_declared(rows, schema, opener.name, stretch.ledger_id, conditions=not options.reads_entries)


def as_declared(rows: pa.RecordBatch, schema: pa.Schema, log: str, ledger_id: int, *, conditions: bool) -> pa.RecordBatch:
    """The rows as ``schema``, which may declare columns NOT NULL. ``conditions``: the read takes option ``where``.

    Raises SchemaMismatchError where such a column holds a null.
    """
    if rows.schema == schema:
        return rows
    for column, asked in zip(rows.columns, schema, strict=True):
        place = null_place(column, asked)
        if place is not None:
            problem = f"'{place}' is declared NOT NULL, and a row of ledger {ledger_id} has a null there"
            remedy = "declare it without NOT NULL"
            if conditions and place == asked.name:
                remedy += f", or leave such rows out with option 'where', `{place}` IS NOT NULL"
            raise SchemaMismatchError(log, f"{problem}: {remedy}")
    return declared(rows, schema)


def entries_as(schema: pa.Schema) -> Converter:
    """Gives entries as the columns of ``schema``: some or all of ledger_id, entry_id and payload."""

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = [
            constant(ledger_id, batch.num_rows, field.type) if field.name == "ledger_id" else batch.column(field.name)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return convert


def opener_of(bookkeeper: BookKeeper, options: SourceOptions, sources: Sources | None) -> LogLedgerOpener:
    """Opens ledgers of a log; without ``sources`` any ledgers, from bookies alone."""
    on_bookies = partial(opened, bookkeeper, options)
    if sources is None:
        return LogLedgerOpener(bookkeeper.logs, "(entries)", None, on_bookies)
    return LogLedgerOpener(bookkeeper.logs, sources.log, sources.uid, on_bookies, sources.places)


def opened(bookkeeper: BookKeeper, options: SourceOptions, ledger_id: int, *, recover: bool = False) -> ReadHandle:
    """Open a ledger to read it. Only the driver may ``recover``: the tasks read up to the ends that it planned.

    Raises NoSuchLedgerError, UnauthorizedAccessError; ConfigError where the ledger does not have the given digest type.
    """
    handle = bookkeeper.open_ledger(ledger_id, options.password, recover=recover)
    found = handle.metadata.digest_type
    if "digesttype" in options.given and found is not options.digest_type:
        raise ConfigError("option 'digestType'", options.digest_type.name, f"ledger {ledger_id} was created with {found.name}")
    return handle
