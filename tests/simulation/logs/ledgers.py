"""Ledgers in a duel of logs, as exact as the protocol promises them, and no more exact.

What the protocol's own simulation has shown (engine.py) is taken for granted here: entries are stored in order; once fenced,
nothing more is stored; a recovery ends the ledger behind all that was stored, and may or may not keep what was under way; a
confirmation tells of a stored entry, at any later time, also after the fence. State and end are in the metadata store, and
change by compare-and-set alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.config import LedgerOptions
from bk_spark.errors import (
    AddQuorumTimeoutError,
    BookKeeperError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    MetadataUnavailableError,
)
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState, new_ledger
from bk_spark.metadata.store import BadVersionError, NoNodeError
from bk_spark.metadata.znodes import Znodes
from tests.simulation.engines.choices import Choices
from tests.simulation.logs.baton import Arrival
from tests.simulation.logs.tree import Session, Tree

_TRIES = 8
_BOOKIES = ("b1", "b2", "b3")


class Turns(Protocol):
    """What ledgers need of the process that uses them."""

    @property
    def is_alive(self) -> bool:
        """Whether it hears of anything."""

    def turn(self, what: str) -> None:
        """Let others come first."""

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Stand still until it holds."""


@dataclass(slots=True)
class Bookies:
    """What the bookies of one ledger hold: ``stored`` of ``pushed`` entries are at an ack quorum."""

    ledger_id: int
    pushed: list[bytes] = field(default_factory=list)
    stored: int = 0
    is_fenced: bool = False
    is_slow: bool = False
    """What is under way to or from them arrives late."""
    writer: LedgerWriter | None = None

    def arrivals(self) -> list[Arrival]:
        """An entry reaches its quorum; the writer hears of one, or that it is fenced."""
        found: list[Arrival] = []
        if self.stored < len(self.pushed) and not self.is_fenced:
            found.append(self._store_next)
        if self.writer is not None and self.writer.has_news:
            found.append(self.writer.hear)
        return found

    def _store_next(self) -> None:
        self.stored += 1


class LedgerWriter:
    """The handle of the writer of one ledger. ``append_async`` never waits; futures are resolved in the order of appends."""

    def __init__(self, process: Turns, ledgers: Ledgers, metadata: LedgerMetadata, version: int) -> None:
        self.ledger_id = metadata.ledger_id
        self.confirmed = 0
        self.length = 0
        """Of what is confirmed."""
        self.error: BookKeeperError | None = None
        self._process = process
        self._ledgers = ledgers
        self._metadata = metadata
        self._version = version
        self._bookies = ledgers.bookies[metadata.ledger_id]
        self._bookies.writer = self
        self._open: list[Future[int]] = []

    def _write_for(self, log: str, leader: object) -> None:
        """The client of this ledger has no beat, and never ends."""

    def _check_takes(self, nbytes: int) -> None:
        """All of them."""

    def append_async(self, payload: bytes) -> Future[int]:
        self._process.turn(f"add to ledger {self.ledger_id}")
        future: Future[int] = Future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        self._bookies.pushed.append(payload)
        self._open.append(future)
        return future

    def append(self, payload: bytes) -> int:
        future = self.append_async(payload)
        self._process.wait(future.done, f"an add to ledger {self.ledger_id}")
        return future.result()

    def append_batch_async(self, payloads: pa.BinaryArray) -> Future[tuple[int, int]]:
        raise NotImplementedError

    @property
    def last_add_confirmed(self) -> int:
        return self.confirmed - 1

    @property
    def is_waiting(self) -> bool:
        return bool(self._open) and self._process.is_alive

    @property
    def has_news(self) -> bool:
        is_fenced = self._bookies.is_fenced and self.confirmed == self._bookies.stored
        return self.is_waiting and (self.confirmed < self._bookies.stored or is_fenced)

    def hear(self) -> None:
        if self.confirmed < self._bookies.stored:
            self.length += len(self._bookies.pushed[self.confirmed])
            self.confirmed += 1
            self._open.pop(0).set_result(self.confirmed - 1)
        else:
            self._fail(LedgerFencedError(self.ledger_id))

    def time_out(self) -> None:
        """No quorum in time: what was under way may be stored all the same."""
        self._fail(AddQuorumTimeoutError(self.ledger_id, self.confirmed, 1.0))

    def close(self) -> None:
        """End the ledger behind the last confirmed entry; what is under way fails."""
        if self.error is None:
            self._fail(LedgerClosedError(self.ledger_id))
        for _ in range(self._ledgers.draw_delay()):
            self._process.turn(f"closing ledger {self.ledger_id}")
        closed = self._metadata.closed_at(self.confirmed - 1, self.length)
        for _ in range(_TRIES):
            try:
                self._ledgers.set(closed, self._version)
                return
            except (BadVersionError, NoNodeError):
                self._ledgers.sync()
            except MetadataUnavailableError:
                pass
            found, _ = self._ledgers.versioned(self.ledger_id)
            if found.state is not LedgerState.OPEN:
                break
        if found != closed:
            raise LedgerFencedError(self.ledger_id)

    def _fail(self, error: BookKeeperError) -> None:
        self.error = error
        while self._open:
            self._open.pop(0).set_exception(error)


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """The handle of a reader: as far as the ledger was confirmed when it was opened."""

    bookies: Bookies
    last_add_confirmed: int
    is_closed: bool

    def payloads(self, first: int) -> list[bytes]:
        """From there on."""
        return self.bookies.pushed[first : self.last_add_confirmed + 1]

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"payload": pa.array(self.bookies.pushed[first : last + 1], pa.binary())})


class Ledgers:
    """The ledgers as one process sees them, through its session."""

    def __init__(self, process: Turns, session: Session, bookies: dict[int, Bookies], choices: Choices) -> None:
        self.bookies = bookies
        self._process = process
        self._session = session
        self._choices = choices
        self._store = LedgerStore(session, ZNODES)

    def draw_delay(self) -> int:
        """How many turns something takes."""
        return self._choices.choose(30, "delay")

    def versioned(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        return self._store.versioned(ledger_id)

    def existing(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        return self._store.existing(ledger_ids)

    def sync(self) -> None:
        self._session.sync(ZNODES.root)

    def set(self, metadata: LedgerMetadata, version: int) -> None:
        self._session.set(ZNODES.ledger(metadata.ledger_id), metadata.encode(), version)

    def writer(self, metadata: LedgerMetadata) -> LedgerWriter:
        """For a ledger that this process has just created."""
        is_slow = self._choices.choose(2, "slow bookies") == 1
        self.bookies[metadata.ledger_id] = Bookies(metadata.ledger_id, is_slow=is_slow)
        return LedgerWriter(self._process, self, metadata, 0)

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """Fence and close. Raises NoSuchLedgerError, MetadataUnavailableError."""
        for _ in range(_TRIES):
            metadata, version = self.versioned(ledger_id)
            if metadata.is_closed:
                return metadata
            try:
                return self._recover(metadata, version)
            except (BadVersionError, NoNodeError):
                self.sync()
        raise MetadataConflictError(f"ledger {ledger_id}", "its recovery was overtaken again and again")

    def _recover(self, metadata: LedgerMetadata, version: int) -> LedgerMetadata:
        if metadata.state is LedgerState.OPEN:
            self.set(in_recovery(metadata), version)
            version += 1
        bookies = self.bookies[metadata.ledger_id]
        self._process.turn("bookies")
        bookies.is_fenced = True
        self._process.turn("bookies")
        kept = self._choices.between(bookies.stored, len(bookies.pushed), "recovered entries")
        closed = metadata.closed_at(kept - 1, length_of(bookies.pushed[:kept]))
        self.set(closed, version)
        return closed

    def open(self, ledger_id: int) -> LedgerReader:
        """For reading, without disturbing the writer."""
        metadata, _ = self.versioned(ledger_id)
        self._process.turn("last add confirmed")
        bookies = self.bookies[ledger_id]
        if metadata.last_entry_id is not None:
            return LedgerReader(bookies, metadata.last_entry_id, True)
        confirmed = bookies.writer.confirmed if bookies.writer else 0
        return LedgerReader(bookies, self._choices.between(0, confirmed, "last add confirmed") - 1, False)


ZNODES = Znodes("/ledgers")


def first_metadata(ledger_id: int, tags: dict[str, bytes]) -> LedgerMetadata:
    return new_ledger(ledger_id, LedgerOptions(custom_metadata=tags), _BOOKIES, created_ms=0, creator_token=ledger_id)


def in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.IN_RECOVERY)


def length_of(payloads: list[bytes]) -> int:
    """As bookies count: payload bytes."""
    return sum(len(one) for one in payloads)


def entries_of(tree: Tree, bookies: dict[int, Bookies], ledger_id: int) -> list[bytes] | None:
    """What a closed ledger holds; None if it is not there or not closed."""
    node = tree.newest.get(ZNODES.ledger(ledger_id))
    if node is None:
        return None
    metadata = LedgerMetadata.decode(ledger_id, node.value)
    return None if metadata.last_entry_id is None else bookies[ledger_id].pushed[: metadata.last_entry_id + 1]
