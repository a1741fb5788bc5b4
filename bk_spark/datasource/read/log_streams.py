"""The logs of a stream over several, on Spark's driver: which there are, where the stream stands in each, and which are gone.

A log has a uid. One that is deleted and made anew under its name is gone, and another one has come.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.connection import connect
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.read.late_log import check_fits
from bk_spark.datasource.read.loaded_log import Stored, load_log
from bk_spark.datasource.read.log_stream import LogStream, cursor_name_of
from bk_spark.datasource.read.named_logs import NamedLogs
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.several_offset import InLog, SeveralOffset, parse_several
from bk_spark.datasource.read.tail import StreamThreads
from bk_spark.errors import ConfigError, LogGoneError, NoSuchLogError
from bk_spark.log.stream.positions import StreamOffset, StreamPosition
from bk_spark.log.stream.whole_transactions import MadeVersion

DELETED = "it was deleted, and the stream may not have read all of it"

logger = logging.getLogger(__name__)


class LogStreams:
    """Has a LogStream for each log that the stream follows, or plans a batch of. Used by one thread."""

    def __init__(self, reading: Reading, stored: Stored) -> None:
        options = reading.options
        self._reading = reading
        self._stored = stored
        self._bookkeeper = connect(options.metadata, options.client)
        self._threads = StreamThreads(StreamThread("bk-spark-tail-several"))
        self._named = NamedLogs(self._bookkeeper.logs.names, options, self._threads.looks)
        self._cursor_name = cursor_name_of(reading)
        self._streams: dict[str, LogStream] = {}
        self._frozen: Mapping[str, str] | None = None
        self._late: dict[str, StreamOffset] = {}
        """Where the stream begins in logs that it has found and not read yet."""
        self._checked: set[str] = set()
        self._left: set[str] = set()

    def stream(self, uid: str, name: str) -> LogStream:
        """The log's part of the stream."""
        if uid not in self._streams:
            made = LogStream.of(self._reading, name, uid, self._cursor_name, self._threads)
            if self._frozen is not None:
                made.freeze()
            self._streams[uid] = made
        return self._streams[uid]

    def initial(self) -> SeveralOffset:
        """Where a stream without a checkpoint starts in each log that is there now, or in those of option ``startingOffsets``.

        Raises NoSuchLogError, and ConfigError as ``FollowedLog.initial_position``.
        """
        options, named = self._reading.options, self._named.fresh() if self._frozen is None else self._frozen
        missing = next((name for name in options.logs if name not in named.values()), None)
        if missing is not None:
            raise NoSuchLogError(missing)
        if options.starting_offsets not in (None, EARLIEST, LATEST):
            return self._given(str(options.starting_offsets), named)
        heads = self._bookkeeper.logs.names.heads(named)
        gone = next((name for uid, name in named.items() if uid not in heads), None)
        if gone is not None:
            raise NoSuchLogError(gone)
        starts = {uid: self.stream(uid, head.name).log.initial_position(options, head) for uid, head in heads.items()}
        return SeveralOffset({uid: InLog(named[uid], StreamOffset(start, start)) for uid, start in starts.items()})

    def standing(self, given: SeveralOffset) -> dict[str, InLog]:
        """Where the stream stands in each log that there is: as given, or before the first row of a log that came later.

        Raises LogGoneError for a log of ``given`` that is gone, unless ``failOnDataLoss`` is false.
        """
        named = self._named.now() if self._frozen is None else self._frozen
        found = {uid: one for uid, one in given.logs.items() if uid in named or self._is_there(uid, one.name, named)}
        for uid, name in named.items():
            start = None if uid in given.logs else self._first(uid, name)
            if start is not None:
                found[uid] = InLog(name, start)
        for uid in self._streams.keys() - found.keys():
            self._drop(uid)
            self._late.pop(uid, None)
        return found

    def check_late(self, uid: str, name: str) -> None:
        """Raise SchemaMismatchError where a log that came later, and is now read, does not fit the stream's columns."""
        if uid in self._checked:
            return
        log = load_log(self._bookkeeper, self._reading.options, name)
        if log.uid != uid:
            raise NoSuchLogError(name)
        check_fits(log, self._stored, self._reading)
        self._checked.add(uid)

    def made(self, uid: str, after: int, last: int) -> list[MadeVersion]:
        """See ``FollowedLogs``."""
        return self._streams[uid].made(after, last) if uid in self._streams else []

    def behind(self, uid: str, version: int) -> StreamPosition | None:
        """See ``FollowedLogs``. A log that the stream has left gives nothing."""
        return self._streams[uid].end_of_version(version) if uid in self._streams else None

    def before(self, uid: str, version: int, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        """See ``FollowedLogs``."""
        return self._streams[uid].before(version, start, end)

    def awaits(self, uid: str) -> bool:
        """Whether there is a log that the options name, and that the last look at the names did not find."""
        if uid in self._left or uid in self._streams:
            return False
        head = self._bookkeeper.logs.names.head_of(uid)
        return head is not None and self._named.names(head.name)

    def freeze(self) -> None:
        """From now on no log comes, and none is read further than what is confirmed now."""
        self._streams.clear()  # those that are made now are frozen
        self._frozen = self._named.fresh()
        for uid, name in self._frozen.items():
            with suppress(NoSuchLogError):  # it is being deleted: who reads it hears of that
                self.stream(uid, name)

    def move_cursor(self, uid: str, position: StreamPosition) -> None:
        """See ``LogStream``. A log that the stream has left has none."""
        if uid in self._streams:
            self._streams[uid].move_cursor(position)

    def is_gone(self, uid: str, name: str, *, is_known: bool = True) -> bool:
        """Whether a log that was just not found is deleted. If not, a server did not know it yet: it does now, ask again.

        Raises LogGoneError for a deleted log that the stream knows, unless ``failOnDataLoss`` is false.
        """
        try:
            self._bookkeeper.logs.names.fresh_head(name, uid)
        except NoSuchLogError:
            if is_known:
                self._leave(uid, name, DELETED)
            return True
        self._drop(uid)  # what follows it has failed
        return False

    def stop(self) -> None:
        """End the background threads."""
        self._threads.looks.stop()

    def _leave(self, uid: str, name: str, problem: str) -> None:
        """Go on without a log that is gone, with a warning. Raises LogGoneError unless ``failOnDataLoss`` is false."""
        gone = LogGoneError(name, problem)
        if self._reading.options.fail_on_data_loss:
            raise gone
        if uid not in self._left:
            logger.warning("%s", gone.warning)
        self._left.add(uid)

    def _drop(self, uid: str) -> None:
        if uid in self._streams:
            self._streams.pop(uid).stop()

    def _is_there(self, uid: str, name: str, named: Mapping[str, str]) -> bool:
        """Whether a log is there that was not found by its name: after a restart, a server may not know it yet."""
        if uid in self._left:
            return False
        if not self._named.names(name):
            self._leave(uid, name, "the query's options do not name it any more")
            return False
        try:
            self._bookkeeper.logs.names.fresh_head(name, uid)
        except NoSuchLogError:
            anew = "; the log of this name that is there now is another one" if name in named.values() else ""
            self._leave(uid, name, DELETED + anew)
            return False
        return True

    def _first(self, uid: str, name: str) -> StreamOffset | None:
        """Where the stream begins in a log that came later; None if it is deleted already."""
        if uid not in self._late:
            try:
                start = self.stream(uid, name).log.earliest()
            except NoSuchLogError:
                return None
            self._late[uid] = StreamOffset(start, start)
        return self._late[uid]

    def _given(self, text: str, named: Mapping[str, str]) -> SeveralOffset:
        what = "option 'startingOffsets'"
        found = {}
        for uid, one in parse_several(text, what).logs.items():
            if uid not in named:
                problem = f"log '{one.name}' with this id is none of the logs that the query reads: leave it out, or name it"
                raise ConfigError(what, uid, problem)
            start = self.stream(uid, named[uid]).log.checked(one.offset.position, what)
            found[uid] = InLog(named[uid], StreamOffset(start, start))
        return SeveralOffset(found)
