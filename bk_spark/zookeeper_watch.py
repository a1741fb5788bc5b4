"""A watch that lasts: ZooKeeper's own fire once and die with their connection, this one is set again each time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bk_spark.errors import MetadataAccessError, MetadataUnavailableError

if TYPE_CHECKING:
    from kazoo.protocol.states import WatchedEvent

log = logging.getLogger(__name__)

SetWatch = Callable[[Callable[["WatchedEvent"], None]], None]
"""Asks the server for one event, and says whom to tell. Raises MetadataUnavailableError."""


class Watch:
    """Calls ``on_change``, in the store's callback thread, for every change from the moment of ``arm`` on."""

    def __init__(self, set_watch: SetWatch, on_change: Callable[[], None]) -> None:
        self._set_watch = set_watch
        self._on_change = on_change
        self._ended = False

    def arm(self) -> None:
        self._set_watch(self._on_event)

    def end(self) -> None:
        """No call begins after this one. The server still holds one event, which then tells nobody."""
        self._ended = True

    def refresh(self) -> None:
        """Set the watch again, then report: what changes after the report fires the new watch."""
        if self._ended:
            return
        try:
            self.arm()
        except MetadataUnavailableError:
            return  # the next connection refreshes again
        except MetadataAccessError as problem:
            log.warning("nothing more can be watched: %s", problem)  # who is told reads, and learns why
        if not self._ended:
            self._on_change()

    def _on_event(self, event: WatchedEvent) -> None:
        if event.path is not None:  # None: the connection was lost, and the next one refreshes
            self.refresh()
