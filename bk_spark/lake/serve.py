"""Tiers the logs of a cluster for as long as it runs. Any number of such processes share the work.

Each log has one *worker* at a time, who holds an ephemeral znode of the log's tier. It only keeps others from the same work:
the protocol of the steps keeps two tierers apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from bk_spark.errors import BookKeeperError, NoSuchLogError
from bk_spark.lake.tier_log import Tiering
from bk_spark.log.log_store import LogStore
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.metadata.store import ANY_VERSION, NodeExistsError, NoNodeError

logger = logging.getLogger(__name__)


class Stop(Protocol):
    """When to end."""

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is time, within ``timeout`` seconds."""


Tried = Callable[[str, BookKeeperError | None], None]
"""Takes the name of a log, and why it could not be tiered; None where it was, or where another process does it."""


class TierServer:
    """``name`` says in the metadata store who works on a log. ``opener_of`` takes the name and the uid of a log."""

    def __init__(
        self,
        logs: LogStore,
        name: str,
        opener_of: Callable[[str, str], LogLedgerOpener],
        tried: Tried = lambda name, problem: None,
    ) -> None:
        self._logs = logs
        self._name = name
        self._opener_of = opener_of
        self._tried = tried

    def serve(self, until: Stop, interval_s: float) -> None:
        """Look at all logs every ``interval_s`` seconds. What goes wrong with one is logged, and tried again the next time."""
        while not until.wait(0):
            for name, uid in self._tiered():
                if until.wait(0):
                    return
                self.tier(name, uid)
            until.wait(interval_s)

    def _tiered(self) -> Iterator[tuple[str, str]]:
        try:
            found = self._logs.names.find_many(self._logs.names.all())
        except BookKeeperError as problem:
            logger.warning("the logs are not known now: %s", problem)
            return
        for name, uid in found.items():
            try:
                is_tiered = self._logs.names.head(name, uid).tier is not None
            except NoSuchLogError:
                continue  # it was deleted meanwhile
            except BookKeeperError as problem:
                logger.warning("log '%s' is not known now: %s", name, problem)
                continue
            if is_tiered:
                yield name, uid

    def tier(self, name: str, uid: str) -> None:
        """Tier one log, unless somebody else does."""
        try:
            with self._working_on(uid) as is_mine:
                if not is_mine:
                    self._tried(name, None)
                    return
                report = Tiering(self._opener_of(name, uid)).run_due()
        except BookKeeperError as problem:
            logger.warning("log '%s' is not tiered now: %s", name, problem)
            self._tried(name, problem)
            return
        self._tried(name, None)
        if report.tiered.ledgers or report.released.ledgers:
            told = "log '%s': %d rows of %d ledgers were tiered, %d ledgers left the bookies"
            logger.info(told, name, report.tiered.rows, report.tiered.ledgers, report.released.ledgers)

    @contextmanager
    def _working_on(self, uid: str) -> Iterator[bool]:
        path = self._logs.names.paths(uid).tier_worker
        try:
            self._logs.store.create(path, self._name.encode(), ephemeral=True)
        except (NodeExistsError, NoNodeError):
            yield False
            return
        try:
            yield True
        finally:
            with suppress(NoNodeError, BookKeeperError):  # it goes with the session at the latest
                self._logs.store.delete(path, ANY_VERSION)
