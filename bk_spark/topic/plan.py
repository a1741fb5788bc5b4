"""Where a read of topics begins and ends in each of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.errors import ConfigError, NoSuchLedgerError, UnreadableMessagesError
from bk_spark.pulsar import stored
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import EARLIEST, LATEST, Offsets, Position
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.ledgers import MAX_LOOKS, TopicLedgers
from bk_spark.topic.search import position_at
from bk_spark.topic.view import TopicLedger, TopicView

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadStart:
    """Where to begin: at offsets, at a publish time, or behind what a durable subscription has read. One of the three."""

    offsets: Offsets | None = None
    time_ms: int | None = None
    subscription: str | None = None
    what: str = "startingOffsets"
    """What errors call the offsets."""

    def check_names(self, topics: Sequence[TopicName]) -> None:
        """Raise ConfigError if the offsets name a topic that is not among these."""
        if self.offsets is not None:
            self.offsets.check_names(self.what, [str(topic) for topic in topics])


class TopicStarts:
    """Finds positions in topics. One thread uses it."""

    def __init__(self, access: TopicAccess, ledgers: TopicLedgers) -> None:
        self._access = access
        self._ledgers = ledgers

    def position(self, start: ReadStart, topic: TopicName, view: TopicView) -> Position:
        """Where a read of this topic begins. Raises ConfigError for a place that the topic does not have."""
        if start.time_ms is not None:
            return position_at(self._access, view, start.time_ms)
        if start.subscription is not None:
            return self._behind_cursor(topic, start.subscription)
        offset = (start.offsets or Offsets.at(EARLIEST)).of(str(topic))
        return offset_in(start.what, offset, view)

    def _behind_cursor(self, topic: TopicName, subscription: str) -> Position:
        """Behind the last message before which all are acknowledged."""
        for _ in range(MAX_LOOKS - 1):
            with suppress(NoSuchLedgerError):  # its broker has begun another ledger since
                return self._behind(topic, subscription)
        return self._behind(topic, subscription)

    def _behind(self, topic: TopicName, subscription: str) -> Position:
        cursor = self._ledgers.store.cursor(topic, subscription)
        if cursor is None:
            known = ", ".join(f"'{one}'" for one in self._ledgers.store.subscriptions(topic)) or "none"
            problem = f"topic '{topic}' has no durable subscription of this name, there are: {known}"
            raise ConfigError("startingSubscription", subscription, problem)
        marked = cursor.mark_delete or self._marked_in_ledger(cursor)
        if marked is None:
            problem = f"its broker has not confirmed yet how far it has read topic '{topic}': try again, or give a message id"
            raise ConfigError("startingSubscription", subscription, problem)
        return Position(marked.ledger_id, marked.entry_id + 1)

    def _marked_in_ledger(self, cursor: stored.StoredCursor) -> Position | None:
        """The position that an active broker writes into the cursor's own ledger: the last one that is confirmed there."""
        handle = self._access.open_ledger(cursor.cursors_ledger_id)
        last = handle.last_add_confirmed
        for batch in handle.read_unconfirmed(last, last) if last >= 0 else ():
            for payload in batch.column("payload"):
                return stored.cursor_entry(payload.as_buffer().to_pybytes())
        return cursor.stored_mark_delete


def offset_in(what: str, offset: str | Position, view: TopicView) -> Position:
    """The position that an offset means in a topic. Raises ConfigError for a ledger that is not the topic's."""
    if offset == EARLIEST:
        return view.first
    if offset == LATEST:
        return view.end
    assert isinstance(offset, Position)
    view.check_listed(what, offset)
    return offset


def readable(
    pairs: Sequence[tuple[TopicLedger, Stretch]], topic: str, *, skip_unreadable: bool
) -> Iterator[tuple[Stretch, ...]]:
    """The stretches whose entries can be read, in runs without a gap. Raises UnreadableMessagesError for others."""
    run: list[Stretch] = []
    for ledger, stretch in pairs:
        if ledger.unreadable is None:
            run.append(stretch)
            continue
        if not skip_unreadable:
            raise UnreadableMessagesError(topic, f"ledger {ledger.ledger_id}", ledger.unreadable)
        left_out = f"{stretch.entries} entries of ledger {ledger.ledger_id}"
        logger.warning("%s of topic '%s' are left out: %s", left_out, topic, ledger.unreadable)
        if run:
            yield tuple(run)
        run = []
    if run:
        yield tuple(run)
