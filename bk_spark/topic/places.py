"""Counting entries along a topic, whichever ledgers they are in. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.pulsar.positions import Position
from bk_spark.topic.view import TopicView


def number_of(view: TopicView, position: Position) -> int:
    """How many entries of the topic that are still there lie before a position."""
    before = 0
    for ledger in view.ledgers:
        if ledger.ledger_id < position.ledger_id:
            before += ledger.last_entry_id + 1
        elif ledger.ledger_id == position.ledger_id:
            before += min(position.entry_id, ledger.last_entry_id + 1)
    return before


def windows_before(view: TopicView, position: Position, first: int, most: int) -> Iterator[list[Stretch]]:
    """The entries before a position, nearest first, in windows that double from ``first`` entries, ``most`` entries in all.

    The stretches of a window are in the topic's order.
    """
    end = number_of(view, position)
    bottom = max(0, end - most)
    size = first
    while end > bottom:
        begin = max(bottom, end - size)
        yield [stretch for ledger, stretch in view.stretches(view.place(begin), view.place(end)) if ledger.unreadable is None]
        end, size = begin, size * 2
