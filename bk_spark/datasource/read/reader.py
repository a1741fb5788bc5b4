"""A batch read: the driver plans which entries each task reads, the tasks read them.

A log is read as its list of ledgers at one version, or between two offsets of a stream. Both start from the one version that
``load()`` saw. Open ledgers at its end are read as far as they are confirmed when partitions are planned, and no ledger
behind one that is not CLOSED (log rule 2). Offsets mean the same as in a stream, which follows commits: a batch read between
two offsets gives the rows of the micro-batches between them. Several logs are planned log after log, and no partition has
rows of two.

Ref: docs/rules.md, log rules 2 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.stretches import Stretch, confirmed_stretch
from bk_spark.datasource.connection import connect
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.latest_read import lane_portions, newest_batches
from bk_spark.datasource.read.loaded_log import LoadedLog
from bk_spark.datasource.read.micro_batch import BatchPlanner
from bk_spark.datasource.read.partitions import cut_large, plan
from bk_spark.datasource.read.read_task import Reading, Sources, opened, opener_of
from bk_spark.errors import ConfigError, NoSuchLedgerError, NoSuchLogError
from bk_spark.log.stored.origins import origins
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.tier_places import TieredPlace
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.plan_again import planned
from bk_spark.log.stream.positions import StreamPosition, parse_position


@dataclass(frozen=True, slots=True)
class LogPortion:
    """What one task reads of one log in a batch query."""

    uid: str
    stretches: tuple[Stretch, ...]
    sources: Sources


class EntryReader(DataSourceReader):
    """Reads logs, or ledgers, as Spark partitions of Arrow record batches. Pickled to every task.

    ``logs`` is empty where the options name ledgers. Planning the partitions fixes the ends: later writes are not read.
    """

    def __init__(self, reading: Reading, logs: Sequence[LoadedLog] = ()) -> None:
        self._reading = reading
        # Every task gets a copy, and planning needs no schemas: those of many logs are megabytes.
        self._logs = tuple(replace(log, schema_json=None) for log in logs)

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Raises NoSuchLogError, NoSuchLedgerError, UnauthorizedAccessError, and as ``portions_of``."""
        options = self._reading.options
        bookkeeper = connect(options.metadata, options.client)
        if self._logs:
            reading = _sharing(self._reading, len(self._logs))
            return [InputPartition(portion) for log in self._logs for portion in portions_of(bookkeeper, reading, log)]
        handles = (opened(bookkeeper, options, ledger_id, recover=options.recover) for ledger_id in options.ledger)
        stretches = [confirmed_stretch(handle) for handle in handles]
        return [InputPartition(portion) for portion in plan(stretches, options.max_bytes_per_partition, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in log order, in exactly the declared schema.

        Raises NoSuchLogError where the log was deleted meanwhile.
        """
        with plain_errors():
            yield from self._rows(partition.value)

    def _rows(self, portion: LogPortion | Sequence[Stretch] | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(portion, LogPortion):
            yield from self._reading.batches(portion or ())
            return
        reading = self._reading
        try:
            if reading.latest is not None:
                yield from newest_batches(reading, reading.latest, portion.stretches, portion.sources)
            else:
                yield from reading.batches(portion.stretches, portion.sources)
        except NoSuchLedgerError:
            options = reading.options
            connect(options.metadata, options.client).logs.names.fresh_head(portion.sources.log, portion.uid)
            raise


def portions_of(bookkeeper: BookKeeper, reading: Reading, log: LoadedLog) -> list[LogPortion]:
    """The entries of a log that each task reads, in log order.

    Raises NoSuchLogError where the log was deleted since ``load()``; NoSuchLedgerError, UnauthorizedAccessError; ConfigError
    for an offset that is not the log's; LogReplacedError, DataLossError, SchemaMismatchError where a stream would raise them.
    """
    options = reading.options
    starts_at_first = options.starting_offsets in (None, EARLIEST) and options.starting_timestamp is None
    if not starts_at_first or options.ending_offsets != LATEST:
        return _portions_between(reading, log)
    snapshot = bookkeeper.logs.reader.snapshot(log.name, log.version)
    stretches = list(_listed(bookkeeper, reading, log, snapshot))
    if reading.latest is not None:
        portions = lane_portions(stretches, snapshot, options.max_bytes_per_partition, options.min_partitions)
    else:
        stretches = cut_large(stretches, options.max_bytes_per_partition, bookkeeper.existing_ledgers)
        portions = plan(stretches, options.max_bytes_per_partition, options.min_partitions)
    sources = _sources(bookkeeper, reading, log, snapshot, [stretch for portion in portions for stretch in portion])
    return [LogPortion(log.uid, portion, sources.only(portion)) for portion in portions]


def _sharing(reading: Reading, logs: int) -> Reading:
    """``reading`` for each of several logs: together they have ``minPartitions``."""
    options = reading.options
    return replace(reading, options=replace(options, min_partitions=-(-options.min_partitions // logs)))


def _sources(
    bookkeeper: BookKeeper, reading: Reading, log: LoadedLog, snapshot: LogSnapshot, stretches: Sequence[Stretch]
) -> Sources:
    ids = {stretch.ledger_id for stretch in stretches}
    places: Mapping[int, TieredPlace] = {}
    if snapshot.tier is not None:
        places = bookkeeper.logs.reader.tier.released(log.name, log.uid, snapshot.tier, ids)
    if not reading.asks_origins:
        return Sources(log.name, log.uid, places=places)
    names, reader = bookkeeper.logs.names, bookkeeper.logs.reader
    head = names.head(log.name, log.uid)
    found = planned(names, log.uid, head, lambda head: origins(reader, head, log.uid, ids, log.version))
    return Sources(log.name, log.uid, found, places)


def _listed(bookkeeper: BookKeeper, reading: Reading, log: LoadedLog, snapshot: LogSnapshot) -> Iterator[Stretch]:
    """The entries of every ledger that the log's version lists in a lane that is to be read."""
    if snapshot.uid != log.uid:
        raise NoSuchLogError(log.name)
    lanes = reading.lanes.of(log.name, log.version, snapshot.lanes)
    for ledger in snapshot.ledgers:
        if lanes is None or ledger.lane in lanes:
            yield Stretch(ledger.ledger_id, 0, ledger.last_entry_id, ledger.length)
    for open_ledger in snapshot.open_ledgers:
        handle = opener_of(bookkeeper, reading.options, Sources(log.name, log.uid))(open_ledger.ledger_id)
        yield confirmed_stretch(handle)
        if not handle.is_closed:
            return


def _portions_between(reading: Reading, log: LoadedLog) -> list[LogPortion]:
    followed = FollowedLog.of(reading.options, log.name, log.uid)
    head = followed.logs.names.head(log.name, log.uid)
    start, end = followed.planned(head, lambda head: _ends(followed, reading.options, log, head))
    return [
        LogPortion(log.uid, portion.stretches, portion.sources)
        for portion in BatchPlanner(followed, reading).portions(start, end)
    ]


def _ends(followed: FollowedLog, options: SourceOptions, log: LoadedLog, head: Head) -> tuple[StreamPosition, StreamPosition]:
    """The first entry to read, and the first one behind the last."""
    end = None if options.ending_offsets == LATEST else _given(log, head, "endingOffsets", options.ending_offsets)
    if options.starting_offsets in (None, EARLIEST):
        start = followed.first(_head_at(followed, head, log.version if end is None else end.version), options)
    else:
        start = _given(log, head, "startingOffsets", str(options.starting_offsets))
        if end is not None and start > end:
            problem = f"it lies behind option 'endingOffsets', {end.to_json(log.uid)}: exchange the two, or give a later end"
            raise ConfigError("option 'startingOffsets'", str(options.starting_offsets), problem)
    return start, followed.latest(_head_at(followed, head, log.version)) if end is None else end


def _given(log: LoadedLog, head: Head, option: str, text: str) -> StreamPosition:
    position = parse_position(text, log.name, log.uid, f"option '{option}'")
    if position.version > head.version:
        problem = f"log '{log.name}' has the versions up to {head.version}: take an offset that this log gave"
        raise ConfigError(f"option '{option}'", text, problem)
    return position


def _head_at(followed: FollowedLog, head: Head, version: int) -> Head:
    """The log's head as it was at ``version``, in the fields that a stream uses."""
    reader = followed.logs.reader
    if version < head.oldest_version:
        problem = (
            f"the oldest one that log '{head.name}' keeps is {head.oldest_version}: give 'startingOffsets' too, or a later end"
        )
        raise ConfigError("the version of option 'endingOffsets'", version, problem)
    if version == head.version:
        return head
    if version == 0:
        return Head(head.name)
    record = reader.version(followed.name, followed.uid, version)
    still_open = reader.listing(followed.name, followed.uid, version).open
    then = replace(head, version=version, time_ms=record.time_ms, total=record.total, end_row=record.end_row)
    return replace(then, replaced_version=record.replaced_version, writer=replace(head.writer, open_ledgers=still_open))
