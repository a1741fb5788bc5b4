"""What travels between the actors of a run: the wire's messages in envelopes, and the calls of the metadata store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bk_spark.errors import BookKeeperError
from bk_spark.metadata.store import StoreError
from bk_spark.wire.messages import AddRequest, ReadBatch, ReadEnd

FORMER = "former"
"""The name of the clients of a former ledger of the same id (former_ledger.py)."""

METADATA = "metadata"
"""The name of the metadata store among the actors."""


@dataclass(slots=True, eq=False)
class Envelope:
    """One message on its way. ``number`` ties an answer to its request."""

    number: int
    source: str
    target: str
    body: object = field(repr=False)
    is_reply: bool = False
    is_lost: bool = False
    """It was dropped while on its way."""

    @property
    def is_of_stream(self) -> bool:
        """Adds of a client to a bookie travel over one stream: in order, or not at all."""
        return isinstance(self.body, AddRequest)


@dataclass(frozen=True, slots=True)
class Broken:
    """A connection broke: no request up to number ``upto``, or only number ``upto`` itself, is answered any more."""

    upto: int
    only: bool = False
    detail: str = "the connection broke"

    def describe(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """All that a bookie sends for one read. Without a ReadEnd it broke off."""

    replies: tuple[ReadBatch | ReadEnd, ...]

    def describe(self) -> str:
        return "; ".join(one.describe() for one in self.replies) or "nothing"


@dataclass(frozen=True, slots=True)
class GetMetadata:
    ledger_id: int
    not_before: int
    """The version that this client has seen: a session never goes back in time."""
    is_synced: bool = False
    """A server that lags catches up first."""

    def describe(self) -> str:
        return "get metadata"


@dataclass(frozen=True, slots=True)
class SetMetadata:
    ledger_id: int
    value: bytes = field(repr=False)
    expected_version: int
    text: str
    """The value in words."""
    guard: str = ""
    """What must exist, or nothing is written."""
    leaving: frozenset[str] | None = None
    """Of a re-replication: the bookies that it may replace; None for all other writes."""
    must_widen: bool = False
    """Whether it replaces them so that copies span more racks."""

    def describe(self) -> str:
        return f"set metadata, if it is at version {self.expected_version}, to {self.text}"


@dataclass(frozen=True, slots=True)
class CallMade:
    """The outcome of a BlockingCall."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def describe(self) -> str:
        return f"the call is made: {self.error!r}" if self.error is not None else "the call is made"


@dataclass(frozen=True, slots=True)
class BlockingCall:
    """A call of a shipped driver (tests/simulation/whole), made where it arrives; answered by CallMade."""

    call: Callable[[], Any]

    def made(self) -> CallMade:
        try:
            return CallMade(self.call())
        except (BookKeeperError, StoreError) as refused:
            return CallMade(error=refused)

    def describe(self) -> str:
        return "a call"


@dataclass(frozen=True, slots=True)
class MarkLedger:
    """Mark the ledger as under-replicated; answered by LedgerMarked."""

    bookies: tuple[str, ...]

    def describe(self) -> str:
        return f"mark the ledger: {', '.join(self.bookies)} lack copies"


@dataclass(frozen=True, slots=True)
class LedgerMarked:
    def describe(self) -> str:
        return "the ledger is marked"


@dataclass(frozen=True, slots=True)
class MetadataValue:
    """The answer to GetMetadata."""

    value: bytes = field(repr=False)
    version: int

    def describe(self) -> str:
        return f"metadata at version {self.version}"


@dataclass(frozen=True, slots=True)
class MetadataSet:
    """The answer to SetMetadata; ``version`` is None if the compare-and-set lost."""

    version: int | None

    def describe(self) -> str:
        return "metadata has another version" if self.version is None else f"metadata set, version {self.version}"


@dataclass(frozen=True, slots=True)
class MetadataMissing:
    """The answer of a store that holds nothing of the ledger any more."""

    def describe(self) -> str:
        return "there is no metadata"


@dataclass(frozen=True, slots=True)
class GuardMissing:
    """The answer to a SetMetadata whose guard is gone."""

    def describe(self) -> str:
        return "its guard is gone"


@dataclass(frozen=True, slots=True)
class MakeGuard:
    """Make an ephemeral guard. Like all that follow here, of a session: without it the request is not answered."""

    session: int
    guard: str

    def describe(self) -> str:
        return f"make guard {self.guard}"


@dataclass(frozen=True, slots=True)
class TakeLock:
    """Take the ledger's lock of re-replication, an ephemeral one; answered by LockTaken."""

    session: int

    def describe(self) -> str:
        return "take the lock"


@dataclass(frozen=True, slots=True)
class GiveLockBack:
    session: int

    def describe(self) -> str:
        return "give the lock back"


@dataclass(frozen=True, slots=True)
class GetLocked:
    """What the ledger is now, after a sync, and whether ``guard`` exists; answered by MetadataValue or GuardMissing."""

    session: int
    guard: str

    def describe(self) -> str:
        return "get metadata with the guard"


@dataclass(frozen=True, slots=True)
class LockTaken:
    is_taken: bool

    def describe(self) -> str:
        return "the lock is taken" if self.is_taken else "the lock is somebody else's"
