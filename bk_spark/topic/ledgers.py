"""How a topic stands: its ledgers as Pulsar lists them, and how far those are confirmed that are still written.

Pulsar lists how many entries a ledger has once its broker closed it. Of all others BookKeeper is asked: of the open ledger at
the end, and of one that a broker left behind when it died.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from bk_spark.errors import MessagesGoneError, NoSuchLedgerError
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.stored import ManagedLedger, StoredLedger
from bk_spark.topic.access import ReadLedger, TopicAccess
from bk_spark.topic.copies import refusal
from bk_spark.topic.store import TopicStore
from bk_spark.topic.view import TopicLedger, TopicView

MAX_LOOKS = 5
"""Looks at a topic whose listed ledgers do not exist: each one more means that Pulsar trimmed ledgers in between."""


class TopicLedgers:
    """Looks at topics as they stand. One thread uses it. Open ledgers stay opened, so that looking again costs one question."""

    def __init__(self, access: TopicAccess, *, lengths: bool = True) -> None:
        """``lengths``: whether it matters how many bytes open ledgers have, which costs the read of an entry of each."""
        self.store: Final = TopicStore(access)
        self._open = access.open_ledger
        self._lengths = lengths
        self._opened: dict[str, tuple[int, ReadLedger]] = {}

    def view(self, topic: TopicName) -> TopicView:
        """The topic now. See ``views``."""
        [view] = self.views([topic])
        return view

    def views(self, topics: Sequence[TopicName]) -> list[TopicView]:
        """Each topic now, in their order; without ledgers for one that has none.

        A ledger that is listed and does not exist ends the view with MessagesGoneError: somebody deleted it beside Pulsar.
        Raises BookieUnavailableError, MetadataUnavailableError, UnauthorizedAccessError.
        """
        found = dict(zip(topics, self.store.managed_ledgers(topics), strict=True))
        return [self._view(topic, found[topic]) for topic in topics]

    def forget_others(self, topics: Set[str]) -> None:
        """Drop what is opened of topics that are not among these."""
        self._opened = {topic: opened for topic, opened in self._opened.items() if topic in topics}

    def _view(self, topic: TopicName, listed: ManagedLedger | None) -> TopicView:
        for _ in range(MAX_LOOKS):
            try:
                return TopicView(str(topic), self._ledgers(str(topic), listed))
            except NoSuchLedgerError as problem:
                missing = problem.ledger_id
                self._opened.pop(str(topic), None)
                [listed] = self.store.managed_ledgers([topic])
        raise MessagesGoneError(str(topic), f"Pulsar lists ledger {missing}, and BookKeeper does not have it")

    def _ledgers(self, topic: str, listed: ManagedLedger | None) -> tuple[TopicLedger, ...]:
        ledgers: list[TopicLedger] = []
        for index, one in enumerate(listed.ledgers if listed else ()):
            is_last = listed is not None and index == len(listed.ledgers) - 1
            ledger = self._asked(topic, one) if _is_to_be_asked(one, is_last=is_last) else _as_listed(one)
            ledgers.append(ledger)
            if not ledger.is_closed:
                break  # nothing behind a ledger that is not closed is read
        return tuple(ledgers)

    def _asked(self, topic: str, listed: StoredLedger) -> TopicLedger:
        ledger_id, ledger = self._opened.get(topic, (-1, None))
        if ledger is None or ledger_id != listed.ledger_id:
            ledger = self._open(listed.ledger_id)
            self._opened[topic] = listed.ledger_id, ledger
        elif not ledger.is_closed:
            ledger.read_last_add_confirmed()
        is_closed = ledger.is_closed  # asked before its end: one that is closed in between is looked at again
        last = ledger.last_add_confirmed
        if is_closed or not self._lengths:
            return TopicLedger(listed.ledger_id, last, ledger.length, is_closed)
        return TopicLedger(listed.ledger_id, last, _length_to(ledger, last), is_closed)


def _is_to_be_asked(listed: StoredLedger, *, is_last: bool) -> bool:
    return listed.is_on_bookies and (is_last or not listed.entries)


def _as_listed(listed: StoredLedger) -> TopicLedger:
    return TopicLedger(listed.ledger_id, listed.entries - 1, listed.size, is_closed=True, unreadable=_refusal(listed))


def _refusal(listed: StoredLedger) -> str | None:
    if listed.is_on_bookies:
        return None
    return "Pulsar deleted it on the bookies, and lists no complete copy" if listed.copy is None else refusal(listed.copy)


def _length_to(ledger: ReadLedger, last: int) -> int:
    """Payload bytes up to an entry: each entry carries them."""
    if last < 0:
        return 0
    return sum(int(batch.column("length")[0].as_py()) for batch in ledger.read_unconfirmed(last, last))
