"""Which entries of a log a batch read reads: the listing of a version, or what lies between two offsets of a stream.

Both start from the one version that ``load()`` saw. Open ledgers at its end are read as far as they are confirmed when
partitions are planned, and no ledger behind one that is not CLOSED (log rule 2). Offsets mean what they mean to a stream,
which follows commits: a batch read between two of its offsets gives the rows of the micro-batches between them.

Ref: docs/rules.md, log rules 2 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.log.stored.values import Head
from bk_spark.client.log.stream.positions import StreamPosition, parse_position
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.micro_batch import BatchPlanner
from bk_spark.datasource.read.partitions import Stretch, cut_at_fragments, plan
from bk_spark.datasource.read.read_task import Reading, opened
from bk_spark.datasource.read.stream_start import follow, open_ends
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import ConfigError, NoSuchLogError


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """The one version of one log that a ``load()`` reads."""

    name: str
    uid: str
    version: int


def parts_of(bookkeeper: BookKeeper, reading: Reading, log: PlannedLog) -> list[tuple[Stretch, ...]]:
    """What each task reads, in log order.

    Raises NoSuchLogError where the log was deleted since; NoSuchLedgerError, UnauthorizedAccessError; ConfigError for an
    offset that is not the log's; LogReplacedError, DataLossError, SchemaMismatchError where a stream could not read it either.
    """
    options = reading.options
    is_whole = options.starting_offsets in (None, EARLIEST) and options.starting_timestamp is None
    if not is_whole or options.ending_offsets != LATEST:
        return _between(reading, log)
    found = list(_listed(bookkeeper, options, log))
    large = [one.ledger_id for one in found if one.length > options.max_bytes_per_partition]
    metadata = dict(zip(large, bookkeeper.ledger_metadata_many(large), strict=True))
    pieces = [cut_at_fragments(one, metadata[one.ledger_id]) if one.ledger_id in metadata else [one] for one in found]
    return plan([piece for some in pieces for piece in some], options.max_bytes_per_partition, options.min_partitions)


def ledger_stretch(handle: ReadHandle) -> Stretch:
    """All of a ledger that is confirmed."""
    last = handle.last_add_confirmed
    length = handle.length if handle.is_closed or last == NO_ENTRY else _confirmed_bytes(handle)
    return Stretch(handle.ledger_id, 0, last, length)


def _confirmed_bytes(handle: ReadHandle) -> int:
    """Entries carry the ledger's payload bytes up to them: the last one says how large an open ledger is."""
    last = handle.last_add_confirmed
    return sum(int(batch.column("length")[0].as_py()) for batch in handle.read(last, last))


def _listed(bookkeeper: BookKeeper, options: SourceOptions, log: PlannedLog) -> Iterator[Stretch]:
    snapshot = bookkeeper.logs.reader.snapshot(log.name, log.version)
    if snapshot.uid != log.uid:
        raise NoSuchLogError(log.name)
    for one in snapshot.ledgers:
        yield Stretch(one.ledger_id, 0, one.last_entry_id, one.length)
    for still_open in snapshot.open_ledgers:
        handle = opened(bookkeeper, options, still_open.ledger_id)
        yield ledger_stretch(handle)
        if not handle.is_closed:
            return


def _between(reading: Reading, log: PlannedLog) -> list[tuple[Stretch, ...]]:
    followed = follow(reading.options, log.name, log.uid)
    start, end = followed.planned(
        followed.logs.names.head(log.name, log.uid), lambda now: _ends(followed, reading.options, log, now)
    )
    return [part.stretches for part in BatchPlanner(followed, reading).parts(start, end)]


def _ends(followed: FollowedLog, options: SourceOptions, log: PlannedLog, now: Head) -> tuple[StreamPosition, StreamPosition]:
    """The first entry that is read, and the first that is not."""
    end = None if options.ending_offsets == LATEST else _given(log, now, "endingOffsets", options.ending_offsets)
    if options.starting_offsets in (None, EARLIEST):
        start = _first(followed, options, _head_at(followed, now, log.version if end is None else end.version))
    else:
        start = _given(log, now, "startingOffsets", str(options.starting_offsets))
    if end is None:
        head = _head_at(followed, now, log.version)
        end = followed.follower.latest(head, open_ends(followed, head))
    return start, end


def _first(followed: FollowedLog, options: SourceOptions, head: Head) -> StreamPosition:
    if options.starting_timestamp is not None:
        return followed.follower.at_time(head, options.starting_timestamp)
    return followed.follower.earliest(head)


def _given(log: PlannedLog, head: Head, option: str, text: str) -> StreamPosition:
    position = parse_position(text, log.name, log.uid, f"option '{option}'")
    if position.version > head.version:
        problem = f"log '{log.name}' has the versions up to {head.version}: take an offset that this log gave"
        raise ConfigError(f"option '{option}'", text, problem)
    return position


def _head_at(followed: FollowedLog, head: Head, version: int) -> Head:
    """The log's head as it was at ``version``, as far as a stream looks at it."""
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
