"""Messages between clients and bookies as frozen values. ``wire/codec.py`` has their protobuf form.

Ref: proto/bookie.proto; docs/formats.md, "The wire".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bk_spark.config import MAX_BATCH_BYTES
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import IdPattern

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = MAX_BATCH_BYTES + 64 * 1024
"""The largest message: one batch of the maximum size with its header."""

KEEPALIVE_MS = 10_000
"""How often a client pings a bookie that it waits for. A bookie allows pings at half of that."""

MAX_TEXT = 512
"""The most characters of a detail or a bookie id."""

MAX_FIGURES = 1_000
"""What a bookie counts of itself in one answer to an operator; it is some dozens."""

MASTER_KEY_BYTES = 32

MAX_WAIT_MS = 60_000
"""The longest that a bookie keeps a long poll; a client that waits longer asks again."""


class Verdict(Enum):
    """What a status says of the thing that was asked for."""

    POSITIVE = "positive"
    NEGATIVE = "explicitly negative"
    UNKNOWN = "unknown"


class Status(Enum):
    """A bookie's answer; the numbers are the wire's. Ref: BP-46, "A note on Response Codes"."""

    OK = pb.OK
    NO_SUCH_LEDGER = pb.NO_SUCH_LEDGER
    NO_SUCH_ENTRY = pb.NO_SUCH_ENTRY
    UNKNOWN = pb.UNKNOWN
    WRONG_BOOKIE = pb.WRONG_BOOKIE
    UNAUTHORIZED = pb.UNAUTHORIZED
    BAD_REQUEST = pb.BAD_REQUEST
    IO_ERROR = pb.IO_ERROR
    DAMAGED = pb.DAMAGED
    UNSUPPORTED_VERSION = pb.UNSUPPORTED_VERSION
    FENCED = pb.FENCED
    READ_ONLY = pb.READ_ONLY

    @property
    def verdict(self) -> Verdict:
        if self is Status.OK:
            return Verdict.POSITIVE
        if self in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
            return Verdict.NEGATIVE
        return Verdict.UNKNOWN


@dataclass(frozen=True, slots=True)
class AddRequest:
    """Store a batch; answered once it is durable, or, with ``deferred_sync``, once it is written."""

    request_id: int
    bookie_id: str
    master_key: bytes = field(repr=False)
    batch: EncodedBatch = field(repr=False)
    recovery: bool = False
    """An add of a recovery or of a re-replication: fences and limbo do not refuse it."""
    deferred_sync: bool = False

    @property
    def ledger_id(self) -> int:
        return self.batch.header.ledger_id

    def describe(self) -> str:
        header = self.batch.header
        return (
            f"{'recovery ' if self.recovery else ''}add #{self.request_id} ledger {header.ledger_id}"
            f" entries {header.first_entry_id}-{header.last_entry_id}"
            f" lac {header.last_add_confirmed} ({len(self.batch.body)} bytes)"
        )


@dataclass(frozen=True, slots=True)
class AddReply:
    request_id: int
    status: Status
    detail: str = ""
    boot: int = 0
    """A random number of this life of the bookie: adds that it never synced die with it."""

    def describe(self) -> str:
        return f"add #{self.request_id}: {self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Send the entries from ``first`` to ``last``, inclusive, that ``pattern`` names, about ``maximum_bytes`` of them."""

    bookie_id: str
    ledger_id: int
    master_key: bytes = field(repr=False)
    first: int
    last: int
    pattern: IdPattern
    maximum_bytes: int
    fence: bool = False
    """The ledger is fenced, durably, before anything is answered."""

    def describe(self) -> str:
        verb = "fence and read" if self.fence else "read"
        return f"{verb} ledger {self.ledger_id} entries {self.first}-{self.last} ({self.maximum_bytes} bytes at most)"


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One batch of a read's answer."""

    batch: EncodedBatch

    def describe(self) -> str:
        header = self.batch.header
        return f"ledger {header.ledger_id} entries {header.first_entry_id}-{header.last_entry_id}"


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """The end of a read's answer: every asked id below ``next_entry_id`` was sent.

    ``status`` is OK if the budget or the range ended it, else it says what is the matter with ``next_entry_id``.
    """

    status: Status
    next_entry_id: int
    detail: str = ""

    def describe(self) -> str:
        return f"read ends before entry {self.next_entry_id}: {self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class LastAddConfirmedRequest:
    """Tell the highest last add confirmed; with ``wait_ms``, once it is above ``beyond`` or the ledger is fenced."""

    bookie_id: str
    ledger_id: int
    master_key: bytes = field(repr=False)
    fence: bool = False
    """The ledger is fenced, durably, before anything is answered."""
    beyond: int = NO_ENTRY
    wait_ms: int = 0
    """How long to wait at most; 0: answer at once."""

    def describe(self) -> str:
        verb = "fence and read" if self.fence else f"wait beyond {self.beyond} for the" if self.wait_ms else "read"
        return f"{verb} last add confirmed of ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class LastAddConfirmedReply:
    status: Status
    last_add_confirmed: int
    detail: str = ""
    is_fenced: bool = False

    def describe(self) -> str:
        fenced = " (fenced)" if self.is_fenced else ""
        return f"last add confirmed {self.last_add_confirmed}{fenced}: {self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class StoreLastAddConfirmedRequest:
    """Note, durably, that a ledger is confirmed up to ``last_add_confirmed``."""

    bookie_id: str
    ledger_id: int
    master_key: bytes = field(repr=False)
    last_add_confirmed: int

    def describe(self) -> str:
        return f"store last add confirmed {self.last_add_confirmed} of ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class FenceRequest:
    """Fence a ledger, durably. Not a message: the part of a fencing read that is staged and synced."""

    bookie_id: str
    ledger_id: int
    master_key: bytes = field(repr=False)

    def describe(self) -> str:
        return f"fence ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class ForceRequest:
    """Make all adds of a ledger that were answered before durable."""

    bookie_id: str
    ledger_id: int
    master_key: bytes = field(repr=False)

    def describe(self) -> str:
        return f"force ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class PlainReply:
    """The answer to a request that asks for nothing but that something be done."""

    status: Status
    detail: str = ""
    boot: int = 0
    """As in AddReply, in the answer to a force: it covers the acks of the same life alone."""

    def describe(self) -> str:
        return f"{self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class DeleteLedgerRequest:
    """Forget what is stored of a ledger, durably. Not a message: how garbage collection reclaims a ledger.

    Its metadata is known to be gone, or to name other bookies. Fence and master key stay (docs/rules.md, storage rule 10).
    """

    ledger_id: int
    deleted_ms: int
    """When, in milliseconds since 1970."""
    decided_at: int | None = None
    """The sequence that was next before it was looked for who needs the ledger: what came in since is not deleted."""

    def describe(self) -> str:
        return f"delete ledger {self.ledger_id}"


StagedRequest = AddRequest | FenceRequest | ForceRequest | StoreLastAddConfirmedRequest | DeleteLedgerRequest
"""What a bookie makes durable before it answers."""

StagedReply = AddReply | PlainReply


@dataclass(frozen=True, slots=True)
class BookieDescription:
    """Who a bookie is and how full its disks are."""

    status: Status
    bookie_id: str
    free_bytes: int
    total_bytes: int
    program_version: str


class AdminOperation(Enum):
    """What an operator asks of a bookie; the numbers are the wire's."""

    GC_RUN = pb.GC_RUN
    GC_SUSPEND = pb.GC_SUSPEND
    GC_RESUME = pb.GC_RESUME
    GC_STATUS = pb.GC_STATUS
    SCRUB = pb.SCRUB
    BOOKIE_STATUS = pb.BOOKIE_STATUS


@dataclass(frozen=True, slots=True)
class AdministerReply:
    """What became of an operation, or how things are. ``figures`` by name: counts, bytes, milliseconds since 1970."""

    status: Status
    detail: str = ""
    figures: dict[str, int] = field(default_factory=dict)
