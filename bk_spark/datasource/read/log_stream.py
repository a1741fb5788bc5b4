"""One log of a stream, on Spark's driver: how far it can be read, what a batch takes of it, its portions, and its cursor.

A stream over one log has one of these, a stream over several has one for each: ``stream_reader.py``, ``several_reader.py``.

Ref: docs/rules.md, log rules 2, 6, 7 and 8.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace

from bk_spark.datasource.read.batch_limits import Admitted, Limits, StoredSizes, admitted
from bk_spark.datasource.read.followed_log import CursorPublisher, FollowedLog
from bk_spark.datasource.read.micro_batch import BatchPlanner, MicroBatchPortion
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.tail import LogTail, StreamThreads
from bk_spark.errors import ConfigError, LogReplacedError
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.follow import LedgerEnd, Newest
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.log.stream.whole_transactions import MadeVersion


class LogStream:
    """Follows one log. Nothing runs in the background until ``newest`` is asked for, and nothing at all once it is frozen."""

    def __init__(self, reading: Reading, log: FollowedLog, cursor: CursorPublisher, threads: StreamThreads) -> None:
        self.log = log
        self.cursor = cursor
        self._reading = reading
        self._threads = threads
        self._tail: LogTail | None = None
        self._planner: BatchPlanner | None = None
        self._sizes = StoredSizes(log.opener, log.opener.on_bookies)
        self._frozen: tuple[Head, dict[int, LedgerEnd]] | None = None
        self._drained: tuple[Head, Newest] | None = None
        """The answer once all up to the fixed end was read: of many logs, most are drained while the last ones are read."""
        self._head = Head(log.name)

    @staticmethod
    def of(reading: Reading, name: str, uid: str, cursor_name: str, threads: StreamThreads) -> LogStream:
        """The log as a stream with these options follows it."""
        log = FollowedLog.of(reading.options, name, uid)
        cursor = CursorPublisher(log, cursor_name, is_named=reading.options.cursor_name is not None)
        return LogStream(reading, log, cursor, threads)

    def newest(self, start: StreamPosition) -> StreamPosition:
        """How far a stream that stands at ``start`` can read: there or further. From memory while nothing happens.

        Raises LogReplacedError, NoSuchLogError, MetadataUnavailableError, BookieUnavailableError.
        """
        self.move_cursor(start)
        self._head, newest = self._look(start)
        end = max(start, newest.position)
        if end == start and newest.replaced_by is not None:
            raise LogReplacedError(self.log.name, newest.replaced_by)
        return end

    def admitted(
        self, start: StreamPosition, end: StreamPosition, limits: Limits, *, least: int = 1
    ) -> Admitted[StreamPosition]:
        """What a batch takes on the way to ``end``, which ``newest`` gave. ``least``: see ``batch_limits.admitted``."""
        fail, sizes = self._reading.options.fail_on_data_loss, self._sizes
        lanes_of = self._reading.lanes_of(self.log.name)

        def admit(head: Head) -> Admitted[StreamPosition]:
            stretches = self.log.follower.stretches(start, end, head, fail_on_data_loss=fail, lanes_of=lanes_of)
            return admitted(stretches, start, limits, sizes, least=least)

        found = self.log.planned(self._head, admit)
        is_empty = found.end == start and not found.is_cut  # all that lies between was truncated, or is of other lanes
        return replace(found, end=end, is_nothing=False) if is_empty else found

    def made(self, after: int, last: int) -> list[MadeVersion]:
        """See ``FollowedLogs``. Of what is vacuumed none is told: a stream from before reads the oldest version's listing."""
        if self._head.transaction_version <= after:
            return []

        def found(head: Head) -> list[MadeVersion]:
            first = after + 1 if after + 1 >= head.oldest_version else head.oldest_version + 1
            first, newest = max(first, 1), min(last, head.version)
            versions = self.log.logs.reader.versions(self.log.name, self.log.uid, first, newest)
            return [MadeVersion(one.version, one.time_ms, one.transaction) for one in versions if one.transaction is not None]

        return self.log.planned(self._head, found)

    def end_of_version(self, version: int) -> StreamPosition | None:
        """Behind all that it gives the stream to read; None if that is nothing, or not known any more."""
        lanes_of = self._reading.lanes_of(self.log.name)

        def end(head: Head) -> StreamPosition | None:
            is_known = version >= head.oldest_version
            return self.log.follower.end_of_version(version, lanes_of) if is_known else None

        return self.log.planned(self._head, end)

    def before(self, version: int, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        """The last position between the two at which nothing of ``version`` was read."""
        fail, lanes_of = self._reading.options.fail_on_data_loss, self._reading.lanes_of(self.log.name)

        def last(head: Head) -> StreamPosition:
            stretches = self.log.follower.stretches(start, end, head, fail_on_data_loss=fail, lanes_of=lanes_of)
            older = itertools.takewhile(lambda one: (one.version, one.index) < (version, 0), stretches)
            return max((one.position_after for one in older), default=start)

        return self.log.planned(self._head, last)

    def portions(self, first: StreamPosition, last: StreamPosition, logs: int = 1) -> list[MicroBatchPortion]:
        """The portions of a batch, the same for the same positions. ``logs`` share ``minPartitions``.

        Raises DataLossError, LogReplacedError, SchemaMismatchError, ConfigError, NoSuchLogError.
        """
        if first > last:
            raise _misplaced(first.to_json(self.log.uid), last.to_json(self.log.uid))
        self._planner = self._planner or BatchPlanner(self.log, self._reading)
        return self._planner.portions(first, last, logs)

    def move_cursor(self, position: StreamPosition) -> None:
        """Have the cursor show that everything before ``position`` was processed."""
        if not self.cursor.want(position):
            return
        if self._tail is not None:
            self._tail.wake()
        elif self._frozen is not None:
            self.cursor.publish()

    def freeze(self) -> None:
        """From now on ``newest`` goes no further than what a quorum of bookies has confirmed now."""
        self._freeze(self.log.logs.names.fresh_head(self.log.name, self.log.uid))

    def stop(self) -> None:
        """Follow the log no more. If Spark kills the process instead, nothing is lost."""
        if self._tail is not None:
            self._tail.stop()

    def _look(self, start: StreamPosition) -> tuple[Head, Newest]:
        if self._frozen is not None:
            return self._look_frozen(self._frozen, start)
        if self._tail is None:
            self._tail = LogTail(self.log, start, self.cursor, self._threads)
        self._tail.start = start
        return self._tail.newest()

    def _look_frozen(self, frozen: tuple[Head, dict[int, LedgerEnd]], start: StreamPosition) -> tuple[Head, Newest]:
        if self._drained is not None and self._drained[1].position == start:
            return self._drained
        head, ends = self._still_readable(*frozen)
        newest = self.log.planned(head, lambda head: self.log.follower.newest(head, ends, start))
        self._drained = (head, newest) if newest.position == start else None
        return head, newest

    def _freeze(self, head: Head) -> tuple[Head, dict[int, LedgerEnd]]:
        self._frozen = head, self.log.open_ends(head)
        return self._frozen

    def _still_readable(self, head: Head, ends: dict[int, LedgerEnd]) -> tuple[Head, dict[int, LedgerEnd]]:
        """The fixed end, without versions that a vacuum removed since: no batch may end in one. A run may take days.

        If a vacuum removed the fixed version itself, this run ends at the log's current end.
        """
        now = self.log.logs.names.head(self.log.name, self.log.uid)
        if now.oldest_version == head.oldest_version:
            return head, ends
        if now.oldest_version > head.version:
            return self._freeze(now)
        self._frozen = replace(head, oldest_version=now.oldest_version, oldest_record=now.oldest_record), ends
        return self._frozen


def cursor_name_of(reading: Reading) -> str:
    """Option ``cursorName``, or else a name that no other query has."""
    return reading.options.cursor_name or uuid.uuid4().hex


def _misplaced(start: str, end: str) -> ConfigError:
    problem = f"it lies behind the batch's end, {end}, so the checkpoint does not say which rows the batch has"
    remedy = "go on with a new checkpoint and the end as option 'startingOffsets', or with an earlier offset that you trust"
    return ConfigError("the start of a batch", start, f"{problem}: {remedy}")
