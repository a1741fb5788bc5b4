"""A watch that ended, which kazoo knows until the server's event, keeps nothing alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import WatchedEvent

from bk_spark.metadata.zookeeper_session import Watch


class Owner:
    def __init__(self) -> None:
        self.changes = 0

    def on_change(self) -> None:
        self.changes += 1


def test_a_watch_that_ended_keeps_nothing_of_its_owner_and_calls_nobody() -> None:
    known: list[Callable[[WatchedEvent], Any]] = []
    owner = Owner()
    watch = Watch(known.append, owner.on_change)
    watch.arm()
    event = WatchedEvent("CHANGED", "CONNECTED", "/a")
    known[0](event)
    assert owner.changes == 1
    watch.end()
    known[0](event)
    assert owner.changes == 1
    left = weakref.ref(owner)
    del owner
    assert left() is None
