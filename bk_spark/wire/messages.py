"""Messages between clients and bookies as frozen values; ``codec.py`` encodes them as protobuf.

Ref: proto/bookie.proto; docs/formats.md, "The wire".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bk_spark.config import MAX_BATCH_BYTES, DigestType
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.entries.digest import Digester, is_keyed
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import IdPattern

PROTOCOL_VERSION = 3
"""Of requests about keyed ledgers: bookies that know only lower ones cannot keep others from reading them."""

OPEN_VERSION = 2
"""Of all other requests."""

MAX_MESSAGE_BYTES = MAX_BATCH_BYTES + 64 * 1024
"""The largest message: one batch of the maximum size with its header."""

KEEPALIVE_MS = 10_000
"""How often a client pings a bookie that it waits for. Bookies allow pings at half this interval."""

MAX_TEXT = 512
"""The most characters of a reply's detail, and of a bookie id."""

MAX_FIGURES = 1_000
"""The most figures in one answer to an operator. A bookie sends a few dozen."""

MASTER_KEY_BYTES = 28
"""Of a proof of the ledger's password and its creator's token: digest.master_key."""

NO_KEY = b""
"""The master key of a request that has none on Apache's wire: reads and forces."""

MAX_PROOF_BYTES = 24
"""Of the proof of an explicit last add confirmed: above the widest digest."""

MAX_WAIT_MS = 60_000
"""The longest that a bookie holds a long poll; a client that waits longer asks again."""


def version_of(master_key: bytes) -> int:
    """The version of a request with this master key."""
    return PROTOCOL_VERSION if is_keyed(master_key) else OPEN_VERSION


class Verdict(Enum):
    """What a status says about the thing that was asked for."""

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
    OTHER_LEDGER = pb.OTHER_LEDGER

    @property
    def verdict(self) -> Verdict:
        if self is Status.OK:
            return Verdict.POSITIVE
        if self in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
            return Verdict.NEGATIVE
        return Verdict.UNKNOWN


@dataclass(frozen=True, slots=True)
class AddRequest:
    """Store a batch. The bookie answers once it is durable, or, with ``deferred_sync``, once it is written."""

    request_id: int
    bookie_id: str
    master_key: bytes = field(repr=False)
    batch: EncodedBatch = field(repr=False)
    recovery: bool = False
    """The add of a recovery or a re-replication, which fenced ledgers and ledgers in limbo take too."""
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
    """A random number that the bookie chose when it started: unsynced adds do not survive its restart."""

    def describe(self) -> str:
        return f"add #{self.request_id}: {self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class LedgerRequest:
    """What requests about one ledger begin with."""

    bookie_id: str
    """The bookie that is meant."""
    ledger_id: int
    master_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadRequest(LedgerRequest):
    """Send the entries from ``first`` to ``last``, inclusive, that ``pattern`` holds, about ``maximum_bytes`` of them."""

    first: int
    last: int
    pattern: IdPattern
    maximum_bytes: int
    fence: bool = False
    """Fence the ledger durably before answering."""
    digest_type: DigestType = DigestType.CRC32C
    """Of the ledger. It is not sent: batches say it themselves, and single entries on Apache's wire do not."""

    def describe(self) -> str:
        verb = "fence and read" if self.fence else "read"
        return f"{verb} ledger {self.ledger_id} entries {self.first}-{self.last} ({self.maximum_bytes} bytes at most)"


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One batch of the answer to a read."""

    batch: EncodedBatch

    def describe(self) -> str:
        header = self.batch.header
        return f"ledger {header.ledger_id} entries {header.first_entry_id}-{header.last_entry_id}"


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """The end of the answer to a read: every requested entry below ``next_entry_id`` was sent.

    ``status`` is OK at the end of the range or of the byte budget, else it says what is wrong with ``next_entry_id``.
    """

    status: Status
    next_entry_id: int
    detail: str = ""

    def describe(self) -> str:
        return f"read ends before entry {self.next_entry_id}: {self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class LastAddConfirmedRequest(LedgerRequest):
    """Return the highest last add confirmed; with ``wait_ms``, once it is above ``beyond`` or the ledger is fenced."""

    fence: bool = False
    """Fence the ledger durably before answering."""
    beyond: int = NO_ENTRY
    wait_ms: int = 0
    """The longest wait; 0: answer at once."""
    digester: Digester | None = field(default=None, repr=False)
    """Verifies the entry that an Apache bookie answers with. It is not sent."""

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
class StoreLastAddConfirmedRequest(LedgerRequest):
    """Record durably that a ledger is confirmed up to ``last_add_confirmed``."""

    last_add_confirmed: int
    proof: bytes | None = None
    """The ledger's digest of its id and this number, MAX_PROOF_BYTES at most, for readers over Apache's wire. Empty if the
    ledger has no digest; None from a client that gives none."""

    def describe(self) -> str:
        return f"store last add confirmed {self.last_add_confirmed} of ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class FenceRequest(LedgerRequest):
    """Fence a ledger durably. Not a message: the part of a fencing read that the bookie stages and syncs."""

    def describe(self) -> str:
        return f"fence ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class ForceRequest(LedgerRequest):
    """Sync all adds of a ledger that the bookie has answered."""

    def describe(self) -> str:
        return f"force ledger {self.ledger_id}"


@dataclass(frozen=True, slots=True)
class PlainReply:
    """The answer to a request that returns no data."""

    status: Status
    detail: str = ""
    boot: int = 0
    """As in AddReply, only in the answer to a force: the force covers only acks with the same ``boot``."""

    def describe(self) -> str:
        return f"{self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class DeleteLedgerRequest:
    """Delete the stored entries of a ledger durably. Not a message: garbage collection stages it.

    The ledger's metadata is gone, names only other bookies, or has another password. Fence and master key stay (docs/rules.md,
    storage rule 10).
    """

    ledger_id: int
    deleted_ms: int
    """When, in milliseconds since 1970; 0 if the metadata still exists and names only other bookies."""
    decided_at: int | None = None
    """The next sequence number when garbage collection began to decide: if copies came in since, nothing is deleted."""
    own_key_hash: bytes = b""
    """Delete only what is stored under another key than this one, the ledger's own; empty: whatever is stored."""

    def describe(self) -> str:
        return f"delete ledger {self.ledger_id}"


StagedRequest = AddRequest | FenceRequest | ForceRequest | StoreLastAddConfirmedRequest | DeleteLedgerRequest
"""Requests that a bookie makes durable before it answers."""

StagedReply = AddReply | PlainReply


MAX_DIRECTORIES = 64
"""Directories that a description tells of: a machine has fewer disks. Further ones are left out."""


@dataclass(frozen=True, slots=True)
class BookieDirectory:
    """One of a bookie's directories, and the space of the file system that it is on."""

    path: str
    uses: str
    """As the cookie names them, separated by spaces: ``data journal-0 entry_log-0``."""
    file_system: str
    """Equal for directories on one file system, of any bookie; empty if the bookie does not know."""
    free_bytes: int
    total_bytes: int
    """0 if it cannot be measured."""

    @property
    def holds_entries(self) -> bool:
        """Whether entry logs are in it, and not only a journal or the index."""
        return "entry_log-" in self.uses


def entry_file_systems(directories: Iterable[BookieDirectory]) -> dict[str, tuple[int, int]]:
    """File system → its free and total bytes, for those with entry logs; empty unless all of these are told of."""
    holding = [one for one in directories if one.holds_entries]
    if not all(one.file_system and one.total_bytes for one in holding):
        return {}
    return {one.file_system: (one.free_bytes, one.total_bytes) for one in holding}


@dataclass(frozen=True, slots=True)
class BookieDescription:
    """A bookie's id, version and disk space."""

    status: Status
    bookie_id: str
    free_bytes: int
    """Of the directory with entry logs that has the least."""
    total_bytes: int
    program_version: str
    directories: tuple[BookieDirectory, ...] = ()
    """Older bookies, and Apache's, do not tell them."""


HIGHEST_LEDGER_ID = "highest_ledger_id"
"""The figure of a BOOKIE_STATUS: the highest ledger id of which the bookie has anything, -1 if it has none."""
MAX_NAMED_LEDGERS = 100
"""Ledgers in a request of an operator, or in the answer: with a text for each some tens of KiB."""


class AdminOperation(Enum):
    """An operator's request to a bookie; the numbers are the wire's."""

    GC_RUN = pb.GC_RUN
    GC_SUSPEND = pb.GC_SUSPEND
    GC_RESUME = pb.GC_RESUME
    GC_STATUS = pb.GC_STATUS
    SCRUB = pb.SCRUB
    BOOKIE_STATUS = pb.BOOKIE_STATUS
    LIMBO_STATUS = pb.LIMBO_STATUS
    LIMBO_END = pb.LIMBO_END
    READ_ONLY_ON = pb.READ_ONLY_ON
    READ_ONLY_OFF = pb.READ_ONLY_OFF


@dataclass(frozen=True, slots=True)
class AdministerReply:
    """The outcome of an operation, or a state. ``figures`` by name: counts, bytes, milliseconds since 1970."""

    status: Status
    detail: str = ""
    figures: dict[str, int] = field(default_factory=dict)
    ledgers: dict[int, str] = field(default_factory=dict)
    """What is said of single ledgers, MAX_NAMED_LEDGERS at most."""
