"""Finds the first message published at a time or later, by halving, without reading the topic.

Pulsar's brokers find it the same way. Producers set the publish time by their own clocks, so times of neighbouring messages may
go back a little, and so may the place that is found.
"""

from __future__ import annotations

import pyarrow as pa

from bk_spark.entries.batch import numbers
from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.entries import TopicEntries
from bk_spark.topic.places import number_of
from bk_spark.topic.view import TopicView

MAX_TIMELESS = 100
"""Neighbouring entries that are looked at for one with a time: damaged ones have none."""


def position_at(access: TopicAccess, view: TopicView, time_ms: int) -> Position:
    """The first entry with a message published at ``time_ms`` (since 1970) or later; the view's end if there is none.

    Ledgers at the begin that cannot be read count as published before those that can.
    """
    there = [ledger for ledger in view.ledgers if ledger.unreadable is None]
    if not there:
        return view.end
    low, high = number_of(view, Position(there[0].ledger_id, 0)), view.entries
    times = PublishTimes(access, view)
    while low < high:
        middle = (low + high) // 2
        found = times.at(middle, high)
        if found is None or found >= time_ms:
            high = middle
        else:
            low = middle + 1
    return view.place(low)


class PublishTimes:
    """The publish times of single entries, by their number in the topic."""

    def __init__(self, access: TopicAccess, view: TopicView) -> None:
        self._entries = TopicEntries(access, TopicName.parse(view.topic))
        self._view = view

    def at(self, entry: int, beyond: int) -> int | None:
        """Milliseconds since 1970 of an entry, or of the next one that tells it; None if none does below ``beyond``."""
        for number in range(entry, min(beyond, entry + MAX_TIMELESS)):
            place = self._view.place(number)
            for batch in self._entries.read(place.ledger_id, place.entry_id, place.entry_id):
                rows = decode(numbers(batch.column("entry_id")), batch.column("payload")).rows
                if rows.num_rows:
                    return int(rows.column("_publish_time").cast(pa.int64())[0].as_py()) // 1000
        return None
