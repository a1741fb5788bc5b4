"""The vocabulary of the client's state machines: their commands, their events, and what they have in common.

A state machine takes events and the time (``handle(event, now_ms)``). It gives back commands (``take_commands()``), and the
time at which it wants to be called even if nothing happens (``deadline_ms()``). It touches no thread, clock, socket or random
source, so a test can play any schedule of events with the very code that the driver runs.

The driver's whole duty: after every ``handle`` carry out all commands in their order, and call ``handle(Tick(), now_ms)`` at
the deadline. The state machine numbers its requests, and ignores answers to numbers that it no longer waits for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, EntryBatch
from bk_spark.entries.body_draft import BodyDraft
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status


class Command:
    """What a state machine wants done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SendAdd(Command):
    """Send a batch to a bookie. Answer: AddAnswered."""

    request_id: int
    bookie_id: str
    batch: EncodedBatch = field(repr=False)
    recovery: bool = False
    """An add of a recovery: a fenced ledger accepts it, too."""
    deferred_sync: bool = False
    """The bookie may answer before the batch is durable."""


@dataclass(frozen=True, slots=True)
class CancelAdd(Command):
    """Ignore the answer to this add; drop the request if it was not sent yet."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendRead(Command):
    """Ask a bookie for entries. Answer: any number of ReadArrived, then one ReadEnded.

    If the read has to wait for other reads of this client, ReadWaits comes first, then ReadSent, unless it is given up while it
    waits. A read that fences never waits.
    """

    request_id: int
    bookie_id: str
    first: int
    last: int
    pattern: IdPattern
    maximum_bytes: int
    fence: bool = False
    """Fence the ledger there before anything is answered."""


@dataclass(frozen=True, slots=True)
class CancelRead(Command):
    """Stop this read."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendReadLastAddConfirmed(Command):
    """Ask a bookie for its highest last add confirmed. Answer: LastAddConfirmedAnswered.

    With ``wait_ms`` the bookie answers once it is above ``beyond``, once the ledger is fenced, or after ``wait_ms``.
    """

    request_id: int
    bookie_id: str
    fence: bool = False
    """Fence the ledger there before anything is answered."""
    beyond: int = NO_ENTRY
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendStoreLastAddConfirmed(Command):
    """Tell a bookie how far the ledger is confirmed. Answer: StoreLastAddConfirmedAnswered."""

    request_id: int
    bookie_id: str
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class SendForce(Command):
    """Ask a bookie to make all adds durable that it has answered. Answer: ForceAnswered."""

    request_id: int
    bookie_id: str


@dataclass(frozen=True, slots=True)
class ChooseReplacements(Command):
    """Find bookies for ``slots`` of an ensemble. Answer: ReplacementsChosen.

    No chosen bookie may be in ``excluded``, or in the ensemble in a slot outside ``slots``.
    """

    request_id: int
    ensemble: tuple[str, ...]
    slots: tuple[int, ...]
    excluded: frozenset[str]
    is_patient: bool = False
    """A cached list of registered bookies will do: a bookie that has gone since then only costs another choice."""
    must_be_sound: bool = False
    """Only bookies that are not in quarantine: they are to take the place of others that are perhaps merely slow."""
    must_widen: bool = False
    """Only bookies with which the write sets span more zones or racks than with those that are in the slots now."""
    only: str = ""
    """If not empty: this bookie or none, and only where no write sets span fewer racks or zones than now."""


@dataclass(frozen=True, slots=True)
class ReportFailure(Command):
    """A bookie failed a request: placement may keep it out of new ensembles for a while."""

    bookie_id: str


@dataclass(frozen=True, slots=True)
class MarkUnderReplicated(Command):
    """Mark the ledger: these bookies lack copies that it says they hold. Answer: MarkAnswered. At most one is under way."""

    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteMetadata(Command):
    """Compare-and-set the ledger's metadata. Answer: a MetadataEvent."""

    metadata: LedgerMetadata
    expected_version: int
    guard: str = ""
    """A path that must exist at the moment of the write, or nothing is written and MetadataUnknown says so. Empty: none."""


@dataclass(frozen=True, slots=True)
class ReadMetadata(Command):
    """Read the ledger's metadata again. Answer: MetadataRead, MetadataGone or MetadataUnknown."""

    is_synced: bool = False
    """Read all that was written before. Otherwise a server that lags may answer with an older value, or with "gone"."""


@dataclass(frozen=True, slots=True)
class Confirm(Command):
    """The entries appended under ``token`` are confirmed; they start at ``first_entry_id``."""

    token: object
    first_entry_id: int


@dataclass(frozen=True, slots=True)
class Reject(Command):
    """The entries appended under ``token`` failed."""

    token: object
    error: BookKeeperError


@dataclass(frozen=True, slots=True)
class Release(Command):
    """No bookie still owes an answer for what was appended under ``token``: it may leave the writer's window."""

    token: object


@dataclass(frozen=True, slots=True)
class Deliver(Command):
    """Verified entries, the next ones in order."""

    batch: EntryBatch = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finish(Command):
    """The state machine has ended, with a result or with an error. No command follows."""

    result: object = None
    error: BookKeeperError | None = None


class Event:
    """What happened."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Start(Event):
    """The first event."""


@dataclass(frozen=True, slots=True)
class Append(Event):
    """The application appends payloads, in this order; ``token`` comes back in Confirm or Reject."""

    payloads: pa.BinaryArray
    token: object
    first_entry_id: int | None = None
    """Chosen by the application; None: the next one."""
    draft: BodyDraft | None = None
    """The payloads in their place in the body of a batch, if they were copied there."""


@dataclass(frozen=True, slots=True)
class ForceRequested(Event):
    """The application wants all acked entries to be durable; ``token`` comes back in Confirm (with the LAC) or Reject."""

    token: object


@dataclass(frozen=True, slots=True)
class CloseRequested(Event):
    """The application closes its writer."""


@dataclass(frozen=True, slots=True)
class Consumed(Event):
    """The application has consumed delivered batches of ``nbytes`` in total."""

    nbytes: int


class _Answer(Event):
    """A bookie's answer. ``UNKNOWN`` also stands for a broken connection.

    ``UNAUTHORIZED`` is one bookie's failure: requests carry the password of the metadata, for whoever gave another one was
    refused before anything was sent. So this bookie has a key that is not the ledger's (docs/rules.md, protocol rule 24).
    """

    __slots__ = ()
    status: Status
    detail: str

    @property
    def problem(self) -> str:
        """Status and detail in words."""
        return f"{self.status.name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class AddAnswered(_Answer):
    """The answer to SendAdd."""

    request_id: int
    status: Status
    detail: str = ""
    boot: int = 0
    """Which run of the bookie's process answered."""


@dataclass(frozen=True, slots=True)
class ForceAnswered(_Answer):
    """The answer to SendForce."""

    request_id: int
    status: Status
    detail: str = ""
    boot: int = 0
    """Which run of the bookie's process answered."""


@dataclass(frozen=True, slots=True)
class StoreLastAddConfirmedAnswered(_Answer):
    """The answer to SendStoreLastAddConfirmed: OK once it is durable."""

    request_id: int
    status: Status
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReadWaits(Event):
    """A SendRead waits for other reads of this client: its bookie was not asked yet."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadSent(Event):
    """A SendRead that waited has been sent."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadArrived(Event):
    """A part of the answer to SendRead."""

    request_id: int
    batch: EncodedBatch = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadEnded(_Answer):
    """The end of the answer to SendRead."""

    request_id: int
    status: Status
    detail: str = ""
    entry_id: int | None = None
    """The entry that ``status`` is about; None: the bookie as a whole."""


@dataclass(frozen=True, slots=True)
class LastAddConfirmedAnswered(_Answer):
    request_id: int
    status: Status
    last_add_confirmed: int
    detail: str = ""
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ReplacementsChosen(Event):
    """The answer to ChooseReplacements: slots with their new bookies, fewer than asked for if there are not enough."""

    request_id: int
    bookies: tuple[tuple[int, str], ...]
    detail: str = ""
    """Why there are fewer."""


@dataclass(frozen=True, slots=True)
class MarkAnswered(Event):
    """The answer to MarkUnderReplicated. After an error the ledger may be marked or not; to mark it again does no harm."""

    error: BookKeeperError | None = None


@dataclass(frozen=True, slots=True)
class MetadataWritten(Event):
    version: int


@dataclass(frozen=True, slots=True)
class MetadataRead(Event):
    """What the store holds now. As an answer to WriteMetadata: the compare-and-set lost against it."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class MetadataGone(Event):
    """The ledger's metadata no longer exists."""


@dataclass(frozen=True, slots=True)
class MetadataUnknown(Event):
    """The store did not answer: a write may have happened or not."""

    error: BookKeeperError


ReadEvent = ReadWaits | ReadSent | ReadArrived | ReadEnded
MetadataLook = MetadataRead | MetadataGone | MetadataUnknown
MetadataEvent = MetadataWritten | MetadataLook


class StateMachine(ABC):
    """A state machine as its driver sees it, and what all of them share."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._finished = False

    @abstractmethod
    def handle(self, event: Event, now_ms: int) -> None:
        """Take in what happened. Afterwards carry out ``take_commands()``."""

    @abstractmethod
    def deadline_ms(self) -> int | None:
        """When to call ``handle(Tick(), …)`` at the latest; None: not needed."""

    def take_commands(self) -> list[Command]:
        """What is to be done, in this order. Each command is given once."""
        commands, self._commands = self._commands, []
        return commands

    def _finish(self, result: object = None, *, error: BookKeeperError | None = None) -> None:
        """End with a result or an error; after the end this does nothing."""
        if not self._finished:
            self._finished = True
            self._commands.append(Finish(result, error))
