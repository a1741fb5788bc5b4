"""What a read keeps of its lanes, and the pure questions about them: who holds what, what came, why nothing came.

A *lane* reads the entries of some residues (id modulo E) from one slot, from its own position on. It has one request
under way, and, while that one's bookie is silent, a speculative one beside it, to another slot that holds the entry at
its position. Whichever brings that entry first goes on.

A slot's failure counts for the entry at the lane's position only, or for all its entries; both are forgotten as soon as
the lane gets on, so that a bookie that failed once is not given up for good.

Ref: BP-46, "A note on Quorums" (read entry), for what failures together say of an entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.client.protocol.state_machine import ReadEnded
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode, int64s
from bk_spark.entries.digest import Digester
from bk_spark.errors import (
    BookieUnavailableError,
    BookKeeperError,
    CorruptionError,
    DigestMismatchError,
    NoSuchEntryError,
)
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status, Verdict


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a slot did not give an entry. ``status`` is None for a wrong digest."""

    status: Status | None
    detail: str

    @property
    def is_of_entry(self) -> bool:
        """Whether it says nothing about the slot's other entries."""
        return self.status in (None, Status.NO_SUCH_ENTRY, Status.DAMAGED)


@dataclass(slots=True)
class Request:
    """A read that was sent to a slot's bookie."""

    request_id: int
    slot: int
    first: int
    sent_ms: int
    heard_ms: int
    """When it was sent, or when the bookie last sent something."""
    is_waiting: bool = False
    """Whether it was not sent yet, as it waits for others: its bookie cannot be late."""
    is_open: bool = True
    """Whether its end has not come yet."""
    useless: int = 0
    """Batches without an entry that was due, since the last with one."""


@dataclass(frozen=True, slots=True)
class Striping:
    """How the entries of a fragment lie on its slots."""

    ensemble_size: int
    write_quorum: int

    @property
    def residues(self) -> frozenset[int]:
        return frozenset(range(self.ensemble_size))

    def residues_of(self, slot: int) -> frozenset[int]:
        return frozenset((slot - k) % self.ensemble_size for k in range(self.write_quorum))

    def holders(self, entry_id: int) -> tuple[int, ...]:
        return write_set(entry_id, self.ensemble_size, self.write_quorum)

    def starts(self) -> list[frozenset[int]]:
        """The residues in as few parts as there must be slots to hold them all."""
        size, quorum = self.ensemble_size, self.write_quorum
        return [frozenset(range(start, min(start + quorum, size))) for start in range(0, size, quorum)]

    def next_id(self, residues: frozenset[int], after: int) -> int:
        """The first id of the residues from ``after`` on."""
        return next(i for i in range(after, after + self.ensemble_size) if i % self.ensemble_size in residues)

    def next_ids(self, residues: frozenset[int], after: int, count: int) -> npt.NDArray[np.int64]:
        """The first ``count`` ids of the residues from ``after`` on."""
        if len(residues) == self.ensemble_size:
            return np.arange(after, after + count, dtype=np.int64)
        rounds = np.arange(after, after + (count // len(residues) + 2) * self.ensemble_size, dtype=np.int64)
        return rounds[np.isin(rounds % self.ensemble_size, sorted(residues))][:count]


@dataclass(slots=True)
class Lane:
    slot: int
    residues: frozenset[int]
    position: int
    """The next entry of the residues: every one below it has arrived."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """Slots that could not give the entry at ``position``."""
    own: Request | None = None
    """To ``slot``."""
    beside: Request | None = None
    """The speculative one. It was sent for the entry at ``position``: the first entry that arrives ends the race."""

    @property
    def requests(self) -> list[Request]:
        return [request for request in (self.own, self.beside) if request is not None]

    @property
    def failures_of_slots(self) -> dict[int, Failure]:
        """The failures that concern more than the entry at ``position``."""
        return {slot: failure for slot, failure in self.failures.items() if not failure.is_of_entry}

    def failed_residues(self, striping: Striping) -> frozenset[int]:
        """The residues that must go elsewhere. Without striping all of them, for one lane reads the whole fragment."""
        if self.residues == striping.residues or self.failures == self.failures_of_slots:
            return self.residues
        return frozenset({self.position % striping.ensemble_size})

    def prefer_beside(self, striping: Striping) -> frozenset[int]:
        """Make the speculative request the lane's own. Gives back the residues that its slot does not hold."""
        assert self.beside is not None
        served = self.residues & striping.residues_of(self.beside.slot)
        rest = self.residues - served
        self.residues, self.slot, self.own, self.beside = served, self.beside.slot, self.beside, None
        return rest


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """Whom to ask of one fragment's ensemble."""

    ledger_id: int
    striping: Striping
    ensemble: tuple[str, ...]
    avoid: frozenset[str]
    """Bookies to ask last."""

    def cover(self, residues: frozenset[int], position: int, failures: dict[int, Failure]) -> tuple[list[Lane], frozenset[int]]:
        """Lanes for residues, as few as there must be, and the residues that only slots in ``failures`` hold."""
        lanes: list[Lane] = []
        left = residues
        while usable := [s for s in range(len(self.ensemble)) if s not in failures and self.striping.residues_of(s) & left]:
            slot = self.best(usable, left, position)
            served = self.striping.residues_of(slot) & left
            lanes.append(Lane(slot, served, self.striping.next_id(served, position), dict(failures)))
            left = left - served
        return lanes, left

    def best(self, slots: list[int], residues: frozenset[int], position: int) -> int:
        """Bookies to avoid come last; then those that serve most; the readers of ledgers and ranges are spread evenly."""

        def rank(slot: int) -> tuple[bool, int, int]:
            served = len(self.striping.residues_of(slot) & residues)
            return self.ensemble[slot] in self.avoid, -served, (slot - self.ledger_id - position) % len(self.ensemble)

        return min(slots, key=rank)

    def others(self, lane: Lane) -> list[int]:
        """The slots that may be asked for the entry at the lane's position beside its own one."""
        return [s for s in self.striping.holders(lane.position) if s != lane.slot and s not in lane.failures]

    def verdict(self, entry_id: int, failures: dict[int, Failure]) -> BookKeeperError:
        """What the failures of an entry's whole write set say together. It is missing only if all of them said so."""
        slots = sorted(self.striping.holders(entry_id))
        statuses = [failures[slot].status for slot in slots]
        if all(status is not None and status.verdict is Verdict.NEGATIVE for status in statuses):
            return NoSuchEntryError(self.ledger_id, entry_id)
        if all(status is None for status in statuses):
            return DigestMismatchError(self.ledger_id, entry_id)
        reasons = tuple(f"{self.ensemble[slot]}: {failures[slot].detail}" for slot in slots)
        return BookieUnavailableError(self.ledger_id, entry_id, reasons)


class Arrivals:
    """Verified entries of all lanes that cannot be delivered yet, because entries before them are still missing."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._batches: list[EntryBatch] = []

    def add(self, batch: EntryBatch) -> None:
        self._batches.append(batch)
        self.nbytes += batch.nbytes

    def take_below(self, frontier: int) -> list[EntryBatch]:
        """The entries below ``frontier``, ascending: in the batches in which they came, or as one if those interleave."""
        cuts = [(batch, int(np.searchsorted(batch.entry_ids, frontier))) for batch in self._batches]
        ready = [batch if cut == len(batch) else batch.slice(0, cut) for batch, cut in cuts if cut]
        self._batches = [batch.slice(cut, len(batch) - cut) for batch, cut in cuts if cut < len(batch)]
        self.nbytes = sum(batch.nbytes for batch in self._batches)
        is_ascending = all(a.entry_ids[-1] < b.entry_ids[0] for a, b in pairwise(ready))
        return ready if is_ascending else [_merged(ready)]


class Verifier:
    """What of a bookie's answer may be believed."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._ledger_id = metadata.ledger_id
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._digester = Digester(metadata.digest_type, metadata.password)

    def good_prefix(
        self, encoded: EncodedBatch, residues: frozenset[int], position: int, last: int
    ) -> tuple[EntryBatch | None, Failure | None]:
        """The entries due from ``position`` to ``last`` up to the first that is wrong, and what is wrong with that one.

        Every entry is verified by itself, and each has to be the next one (docs/rules.md, protocol rule 58).
        """
        try:
            batch = self._due(decode(encoded), residues, position, last)
        except CorruptionError as problem:
            return None, Failure(Status.DAMAGED, str(problem))
        expected = self._striping.next_ids(residues, position, len(batch))
        good = batch.matching(self._digester) & (batch.entry_ids == expected)
        count = int(np.argmin(np.append(good, False)))
        prefix = batch.slice(0, count) if count else None
        if count == len(batch):
            return prefix, None
        return prefix, _wrong_entry(int(batch.entry_ids[count]), int(expected[count]))

    def _due(self, batch: EntryBatch, residues: frozenset[int], position: int, last: int) -> EntryBatch:
        if batch.ledger_id != self._ledger_id:
            raise CorruptionError("an answer to a read", f"it is of ledger {batch.ledger_id}")
        ids = batch.entry_ids
        if residues == self._striping.residues and position <= ids[0] and ids[-1] <= last:
            return batch
        wanted = (ids >= position) & (ids <= last)
        if residues != self._striping.residues:
            wanted &= np.isin(ids % self._striping.ensemble_size, sorted(residues))
        return batch.select(wanted)


def failure_of_end(event: ReadEnded, first: int, position: int) -> Failure | None:
    """What the end of an answer from ``first`` on says against its slot, for a lane that came to ``position``."""
    about = event.entry_id
    if event.status is Status.OK:
        return Failure(Status.UNKNOWN, "an answer without any entry") if position == first else None
    if about is not None and first <= about < position:
        return None  # about an entry of the slot that another lane reads: ask on behind it
    failure = Failure(event.status, f"{event.status.name} {event.detail}".rstrip())
    if failure.is_of_entry and about not in (None, position):
        return Failure(Status.UNKNOWN, f"{failure.detail} (about entry {about}, where entry {position} was due)")
    return failure


def _merged(batches: list[EntryBatch]) -> EntryBatch:
    """Batches of disjoint ids as one, ascending."""
    ids = np.concatenate([batch.entry_ids for batch in batches])
    order = np.argsort(ids)
    rows = int64s(order)
    return EntryBatch(
        batches[0].ledger_id,
        ids[order],
        np.concatenate([batch.last_add_confirmed for batch in batches])[order],
        np.concatenate([batch.lengths for batch in batches])[order],
        pa.concat_arrays([batch.digests for batch in batches]).take(rows),
        pa.concat_arrays([batch.payloads for batch in batches]).take(rows),
    )


def _wrong_entry(entry_id: int, expected: int) -> Failure:
    if entry_id == expected:
        return Failure(None, f"the digest of entry {entry_id} is wrong")
    return Failure(Status.BAD_REQUEST, f"entry {entry_id} came where entry {expected} was due")


# --- How much a reader's next request asks a bookie for
#
# Between two requests nothing travels, so they ask for more while answers come quickly. Where bookies have many readers answers
# are slow, and requests stay small, so that no reader waits for long ones.

QUICK_MS = 250
"""An answer that takes longer loses next to nothing by the milliseconds that pass between two of them."""

MOST_GROWTH = 4
"""Times the first one's bytes that a request asks for at most. With three messages of a MiB a third of the time passes between
two requests, with fifteen a tenth; the more it is, the longer a bookie's readers wait for each other."""


class RequestSize:
    """Of one reader."""

    def __init__(self, first_bytes: int) -> None:
        self._first_bytes = first_bytes
        self.nbytes = first_bytes

    def answered(self, taken_ms: int) -> None:
        """A request was answered well, in so much time."""
        if taken_ms <= QUICK_MS:
            self.nbytes = min(2 * self.nbytes, MOST_GROWTH * self._first_bytes)
        else:
            self.nbytes = max(self.nbytes // 2, self._first_bytes)
