"""The vocabulary of the client's state machines.

A state machine takes events and the time (``handle(event, now_ms)``), and gives back commands (``take_commands()``) and
the time at which it next wants to be called although nothing happened (``deadline_ms()``). It touches no thread, clock,
socket or random source, so that a test can play any schedule of events with the code that the driver runs.

A driver's whole duty: after every ``handle`` carry out all commands in their order, and call ``handle(Tick(), now_ms)``
at the deadline. Requests are numbered by the state machine; an answer to a number that it no longer waits for is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, EntryBatch
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status

# --- commands: what a state machine wants done


@dataclass(frozen=True, slots=True)
class SendAdd:
    """Send a batch to a bookie; answered by AddAnswered."""

    request_id: int
    bookie_id: str
    batch: EncodedBatch = field(repr=False)
    recovery: bool = False
    """An add of a recovery: a fenced ledger takes it, too."""
    deferred_sync: bool = False
    """The answer need not wait until it is durable."""


@dataclass(frozen=True, slots=True)
class CancelAdd:
    """The answer to this add is of no interest any more; what was not sent yet need not be."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendRead:
    """Ask a bookie for entries; answered by ReadArrived, any number of times, and then one ReadEnded. Where it has to wait for
    others before it is sent there is a ReadWaits before that, and, unless it is given up, a ReadSent. One that fences waits
    for no other."""

    request_id: int
    bookie_id: str
    first: int
    last: int
    pattern: IdPattern
    maximum_bytes: int
    fence: bool = False
    """Fence the ledger there before anything is answered."""


@dataclass(frozen=True, slots=True)
class CancelRead:
    """Nobody waits for this read any more."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendReadLastAddConfirmed:
    """Ask a bookie for its highest last add confirmed; answered by LastAddConfirmedAnswered.

    With ``wait_ms`` the bookie answers once it is above ``beyond``, once the ledger is fenced, or after ``wait_ms``.
    """

    request_id: int
    bookie_id: str
    fence: bool = False
    """Fence the ledger there before anything is answered."""
    beyond: int = NO_ENTRY
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendStoreLastAddConfirmed:
    """Tell a bookie how far the ledger is confirmed. Nobody waits for the answer: the next add tells it as well."""

    bookie_id: str
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class SendForce:
    """Ask a bookie to make all adds that it answered durable; answered by ForceAnswered."""

    request_id: int
    bookie_id: str


@dataclass(frozen=True, slots=True)
class ChooseReplacements:
    """Find bookies for ``slots`` of an ensemble; answered by ReplacementsChosen.

    None of them may be in the ensemble, save in one of ``slots``, nor among ``excluded``.
    """

    request_id: int
    ensemble: tuple[str, ...]
    slots: tuple[int, ...]
    excluded: frozenset[str]
    is_patient: bool = False
    """Who was registered a moment ago will do: a bookie that is gone since only costs another choice."""


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """A bookie failed a request: placement may keep it out of new ensembles for a while."""

    bookie_id: str


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Compare-and-set the ledger's metadata; answered by MetadataWritten, MetadataRead, MetadataGone or MetadataUnknown."""

    metadata: LedgerMetadata
    expected_version: int
    guard: str = ""
    """A path that must exist at the moment of the write, or nothing is written: MetadataUnknown says so. Empty: none."""


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata again; answered by MetadataRead, MetadataGone or MetadataUnknown."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """The entries appended under ``token`` are confirmed; they start at ``first_entry_id``."""

    token: object
    first_entry_id: int


@dataclass(frozen=True, slots=True)
class Reject:
    """The entries appended under ``token`` failed."""

    token: object
    error: BookKeeperError


@dataclass(frozen=True, slots=True)
class Release:
    """No bookie owes an answer for what was appended under ``token`` any more: it may leave the writer's window."""

    token: object


@dataclass(frozen=True, slots=True)
class Deliver:
    """Verified entries, the next ones in order."""

    batch: EntryBatch = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finish:
    """The operation is over: with a result, or with an error. Nothing follows."""

    result: object = None
    error: BookKeeperError | None = None


Command = (
    SendAdd
    | CancelAdd
    | SendRead
    | CancelRead
    | SendReadLastAddConfirmed
    | SendStoreLastAddConfirmed
    | SendForce
    | ChooseReplacements
    | ReportFailure
    | WriteMetadata
    | ReadMetadata
    | Confirm
    | Reject
    | Release
    | Deliver
    | Finish
)

# --- events: what happened


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Start:
    """The operation begins."""


@dataclass(frozen=True, slots=True)
class Append:
    """The application appends payloads, in this order; ``token`` comes back in Confirm or Reject."""

    payloads: pa.BinaryArray
    token: object
    first_entry_id: int | None = None
    """Chosen by the application; None: the next one."""


@dataclass(frozen=True, slots=True)
class ForceRequested:
    """The application wants all that was acked to be durable; ``token`` comes back in Confirm (with the LAC) or Reject."""

    token: object


@dataclass(frozen=True, slots=True)
class AddAnswered:
    """A bookie's answer to SendAdd. ``UNKNOWN`` also stands for a broken connection."""

    request_id: int
    status: Status
    detail: str = ""
    boot: int = 0
    """Which life of the bookie answered."""


@dataclass(frozen=True, slots=True)
class ReadArrived:
    request_id: int
    batch: EncodedBatch = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadWaits:
    """A SendRead waits for others of this client before it is sent: its bookie cannot answer until ReadSent."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadSent:
    """A SendRead that waited is sent now."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """The end of an answer to SendRead. ``UNKNOWN`` also stands for a broken connection."""

    request_id: int
    status: Status
    detail: str = ""
    entry_id: int | None = None
    """What ``status`` is about; None for the bookie as a whole."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """The application took delivered batches of together this ``nbytes``."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class LastAddConfirmedAnswered:
    request_id: int
    status: Status
    last_add_confirmed: int
    detail: str = ""
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ForceAnswered:
    """A bookie's answer to SendForce. ``UNKNOWN`` also stands for a broken connection."""

    request_id: int
    status: Status
    detail: str = ""
    boot: int = 0
    """Which life of the bookie answered."""


@dataclass(frozen=True, slots=True)
class ReplacementsChosen:
    """The answer to ChooseReplacements: slots with their new bookies; fewer than asked for, or none, where there are none."""

    request_id: int
    bookies: tuple[tuple[int, str], ...]
    detail: str = ""
    """Why there are fewer."""


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The application closes its writer."""


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    version: int


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """What the store holds now. As an answer to WriteMetadata: the compare-and-set lost against this."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class MetadataGone:
    """The ledger's metadata does not exist any more."""


@dataclass(frozen=True, slots=True)
class MetadataUnknown:
    """The store did not answer: a write may have happened or not."""

    error: BookKeeperError


Event = (
    Tick
    | Start
    | Append
    | ForceRequested
    | AddAnswered
    | ReadArrived
    | ReadWaits
    | ReadSent
    | ReadEnded
    | Consumed
    | LastAddConfirmedAnswered
    | ForceAnswered
    | ReplacementsChosen
    | CloseRequested
    | MetadataWritten
    | MetadataRead
    | MetadataGone
    | MetadataUnknown
)


class StateMachine(Protocol):
    """A state machine as its driver sees it."""

    def handle(self, event: Event, now_ms: int) -> None:
        """Take in what happened. Afterwards carry out ``take_commands()``."""

    def take_commands(self) -> list[Command]:
        """What is to be done, in this order. Each command is given once."""

    def deadline_ms(self) -> int | None:
        """When to call ``handle(Tick(), …)`` at the latest; None: not needed."""
