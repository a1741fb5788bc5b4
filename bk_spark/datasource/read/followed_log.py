"""A log that is followed, and the cursor that tells how far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.values import Head
from bk_spark.client.log.stream.cursors import Cursor
from bk_spark.client.log.stream.follow import LogFollower
from bk_spark.client.log.stream.order import Describe
from bk_spark.client.log.stream.positions import StreamPosition
from bk_spark.errors import BookKeeperError, ConfigError

CURSOR_INTERVAL_S = 1.0
"""The least time between two cursors that are published: each is a synced write in the metadata store."""

_VACUUM_TRIES = 5

_Plan = TypeVar("_Plan")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """A log, and what following it needs."""

    name: str
    uid: str
    logs: LogStore
    follower: LogFollower
    open_ledger: Callable[[int], ReadHandle]
    """Without recovery: never disturbs a writer."""
    describe: Describe

    def head_with(self, position: StreamPosition) -> Head:
        """A head that knows ``position``: right after a restart, this client may talk to a server that does not yet."""
        head = self.logs.names.head(self.name, self.uid)
        return head if head.version >= position.version else self.logs.names.fresh_head(self.name, self.uid)

    def planned(self, head: Head, plan: Callable[[Head], _Plan]) -> _Plan:
        """What ``plan`` makes of ``head``; once more where a vacuum since took away what it looked at.

        A vacuum raises the oldest version at most once each time that it runs: five of them in one planning are none.
        """
        for _ in range(_VACUUM_TRIES):
            try:
                return plan(head)
            except ConfigError:
                now = self.logs.names.head(self.name, self.uid)
                if now.oldest_version == head.oldest_version:
                    raise
                head = replace(head, oldest_version=now.oldest_version, oldest_record=now.oldest_record)
        return plan(head)


class CursorPublisher:
    """Publishes how far a stream has read, once a second at most; what comes last is published in the end.

    One thread says what is wanted, one publishes.
    """

    def __init__(self, log: FollowedLog, name: str, *, is_named: bool) -> None:
        self._log = log
        self._name = name
        self._is_named = is_named
        self._wanted: StreamPosition | None = None
        self._published: StreamPosition | None = None
        self._due_s = 0.0

    def want(self, position: StreamPosition) -> bool:
        """Everything before ``position`` was processed. Gives back whether that is news."""
        if self._wanted is not None and position <= self._wanted:
            return False
        self._wanted = position
        return True

    def wait_s(self) -> float | None:
        """How long until there is something to publish; None for nothing."""
        return None if self._wanted == self._published else max(0.0, self._due_s - time.monotonic())

    def publish(self) -> None:
        """Publish what is wanted now. A stream does not stop because that fails: the reason is logged."""
        position = self._wanted
        if position is None:
            return
        self._published, self._due_s = position, time.monotonic() + CURSOR_INTERVAL_S
        log = self._log
        try:
            row = log.follower.row_number(position, log.head_with(position))
            log.logs.cursors.publish(log.name, log.uid, Cursor(self._name, position, row, self._is_named))
        except BookKeeperError as problem:
            logger.warning("the cursor '%s' of a stream on log '%s' is not published: %s", self._name, log.name, problem)
