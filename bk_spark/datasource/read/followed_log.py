"""A log that a stream follows: where the stream starts, and the cursor that shows how far it has read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.datasource.connection import connect
from bk_spark.datasource.option_values import EARLIEST, LATEST
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.read_task import Sources, opener_of
from bk_spark.errors import BookKeeperError, ConfigError, MetadataAccessError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.follow import LedgerEnd, LogFollower
from bk_spark.log.stream.order import Describe
from bk_spark.log.stream.plan_again import planned
from bk_spark.log.stream.positions import StreamPosition, parse_position
from bk_spark.log.tier.opener import LogLedgerOpener

CURSOR_INTERVAL_S = 1.0
"""The shortest time between two publications of a cursor: each is a synced write in the metadata store."""

_Plan = TypeVar("_Plan")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """A log with what it takes to follow it."""

    name: str
    uid: str
    logs: LogStore
    follower: LogFollower
    opener: LogLedgerOpener
    """Opens without recovery, so it never disturbs a writer."""
    describe: Describe

    @staticmethod
    def of(options: SourceOptions, name: str, uid: str) -> FollowedLog:
        """The log as a stream with these options follows it."""
        bookkeeper = connect(options.metadata, options.client)
        logs, describe = bookkeeper.logs, bookkeeper.existing_ledgers
        follower = LogFollower(logs.reader, name, uid, options.overwrites, describe)
        opener = opener_of(bookkeeper, options, Sources(name, uid))
        return FollowedLog(name, uid, logs, follower, opener, describe)

    @property
    def open_ledger(self) -> Callable[[int], ReadHandle]:
        """Opens one that a leader has open, or had when the log was last looked at."""
        return self.opener.on_bookies

    def head_with(self, position: StreamPosition) -> Head:
        """A head that includes ``position``: right after a restart, the server of this client may not know it yet."""
        head = self.logs.names.head(self.name, self.uid)
        return head if head.version >= position.version else self.logs.names.fresh_head(self.name, self.uid)

    def planned(self, head: Head, plan: Callable[[Head], _Plan]) -> _Plan:
        """See ``plan_again``."""
        return planned(self.logs.names, self.uid, head, plan)

    def initial_position(self, options: SourceOptions, head: Head | None = None) -> StreamPosition:
        """Where a stream without a checkpoint starts: by default behind everything that is confirmed now.

        ``head`` is where the log stands now, if that is known. Raises ConfigError for an offset of another log, or one that the
        log does not keep any more.
        """
        head = head or self.logs.names.fresh_head(self.name, self.uid)
        return self.planned(head, lambda head: self._initial(options, head))

    def earliest(self) -> StreamPosition:
        """The position before the first row that a stream can read."""
        head = self.logs.names.fresh_head(self.name, self.uid)
        return self.planned(head, self.follower.earliest)

    def checked(self, position: StreamPosition, what: str) -> StreamPosition:
        """``position``, which a user gave as ``what``. Raises ConfigError where the log does not have it, or not any more."""
        head = self.logs.names.fresh_head(self.name, self.uid)
        return self.planned(head, lambda head: self._checked(position, head, what))

    def first(self, head: Head, options: SourceOptions) -> StreamPosition:
        """The position that ``startingTimestamp`` names, or else the earliest."""
        if options.starting_timestamp is not None:
            return self.follower.at_time(head, options.starting_timestamp)
        return self.follower.earliest(head)

    def latest(self, head: Head) -> StreamPosition:
        """The position behind everything that is confirmed now."""
        return self.follower.latest(head, self.open_ends(head))

    def open_ends(self, head: Head) -> dict[int, LedgerEnd]:
        """How far a quorum of its bookies has confirmed each open ledger."""
        return {ledger.ledger_id: LedgerEnd.of(self.open_ledger(ledger.ledger_id)) for ledger in head.writer.open_ledgers}

    def _initial(self, options: SourceOptions, head: Head) -> StreamPosition:
        if options.starting_timestamp is not None or options.starting_offsets == EARLIEST:
            return self.first(head, options)
        if options.starting_offsets in (None, LATEST):
            return self.latest(head)
        what = "option 'startingOffsets'"
        return self._checked(parse_position(str(options.starting_offsets), self.name, self.uid, what), head, what)

    def _checked(self, position: StreamPosition, head: Head, what: str) -> StreamPosition:
        if not head.oldest_version <= position.version <= head.version:
            problem = f"log '{self.name}' can be read from version {head.oldest_version} to {head.version}"
            raise ConfigError(what, position.to_json(self.uid), problem)
        self.follower.row_number(position, head)  # raises where nothing stands there
        return position


class CursorPublisher:
    """Publishes how far a stream has read, at most once a second; the last position is always published in the end.

    One thread calls ``want``, one calls ``publish``.
    """

    def __init__(self, log: FollowedLog, name: str, *, is_named: bool) -> None:
        self._log = log
        self._name = name
        self._is_named = is_named
        self._wanted: StreamPosition | None = None
        self._published: StreamPosition | None = None
        self._due_s = 0.0

    def want(self, position: StreamPosition) -> bool:
        """Have ``position`` published: everything before it was processed. Returns whether it is further than before."""
        if self._wanted is not None and position <= self._wanted:
            return False
        self._wanted = position
        return True

    def wait_s(self) -> float | None:
        """How long until ``publish`` is due; None if there is nothing to publish."""
        return None if self._wanted == self._published else max(0.0, self._due_s - time.monotonic())

    def publish(self, pause_s: float = CURSOR_INTERVAL_S) -> None:
        """Publish the wanted position, and the next one ``pause_s`` later. A failure does not stop the stream; it is logged."""
        position = self._wanted
        if position is None:
            return
        self._published, self._due_s = position, time.monotonic() + pause_s
        log = self._log
        try:
            row = log.follower.row_number(position, log.head_with(position))
            log.logs.cursors.publish(log.name, log.uid, Cursor(self._name, position, row, self._is_named))
        except BookKeeperError as problem:
            if isinstance(problem, MetadataAccessError) and not self._is_named:
                return  # who reads the log directly publishes nothing, and did not ask for it
            logger.warning("the cursor '%s' of a stream on log '%s' is not published: %s", self._name, log.name, problem)
