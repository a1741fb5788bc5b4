"""The parts of a read: stripes and their requests, which slots hold what, what arrived, and why something did not arrive.

A *stripe* is the entries of some residues (id modulo E). Its read asks one slot for them, from its own position on, and has
one request under way. While the bookie of that request is silent it has a second, speculative one to another slot that holds
the entry at its position. The read continues with the request that brings that entry first.

A slot's failure counts either for the entry at the stripe's position only, or for all entries of the slot. Both are forgotten
as soon as the stripe advances, so that a bookie that failed once is not given up for good.

A check of replicas uses ``Request``, ``Striping`` and ``Verifier``, too.

Ref: BP-46, "A note on Quorums" (read entry), for what the failures of a write set say about an entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.client.protocol.state_machine import ReadEnded, ReadSent, ReadWaits
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode, int64s
from bk_spark.entries.digest import Digester
from bk_spark.errors import BookieUnavailableError, BookKeeperError, CorruptionError, DigestMismatchError, NoSuchEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status, Verdict


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a slot did not give an entry. ``status`` is None if the digest is wrong."""

    status: Status | None
    detail: str

    @property
    def is_of_entry(self) -> bool:
        """Whether it concerns one entry only, not the slot's other entries."""
        return self.status in (None, Status.NO_SUCH_ENTRY, Status.DAMAGED)


@dataclass(slots=True)
class Request:
    """A read of a slot's bookie."""

    request_id: int
    slot: int
    first: int
    sent_ms: int
    heard_ms: int
    """When it was sent, or when the bookie last sent something."""
    is_waiting: bool = False
    """Whether it waits for other reads and was not sent yet: then its bookie cannot be late."""
    is_open: bool = True
    """Whether its answer has not ended yet."""
    useless: int = 0
    """Batches without a due entry, since the last batch with one."""

    def went_on(self, event: ReadWaits | ReadSent, now_ms: int) -> None:
        self.is_waiting, self.heard_ms = isinstance(event, ReadWaits), now_ms

    def is_silent(self, timeout_ms: int, now_ms: int) -> bool:
        return not self.is_waiting and now_ms >= self.heard_ms + timeout_ms


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
        """All residues in as few parts as possible, each part held by one slot."""
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
class StripeRead:
    """The read of one stripe: how far it has come, and its requests under way."""

    slot: int
    residues: frozenset[int]
    position: int
    """The next entry of the residues: all their entries below it have arrived."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """Slots that could not give the entry at ``position``."""
    own: Request | None = None
    """The request to ``slot``."""
    beside: Request | None = None
    """The speculative request, for the entry at ``position``: the first entry that arrives ends the race."""

    @property
    def requests(self) -> list[Request]:
        return [request for request in (self.own, self.beside) if request is not None]

    @property
    def failures_of_slots(self) -> dict[int, Failure]:
        """The failures that concern all entries of their slots."""
        return {slot: failure for slot, failure in self.failures.items() if not failure.is_of_entry}

    def failed_residues(self, striping: Striping) -> frozenset[int]:
        """The residues that another slot must read: without striping all, as one stripe reads the whole fragment."""
        if self.residues == striping.residues or self.failures == self.failures_of_slots:
            return self.residues
        return frozenset({self.position % striping.ensemble_size})

    def prefer_beside(self, striping: Striping) -> frozenset[int]:
        """Make the speculative request the stripe's own. Returns the residues that its slot does not hold."""
        assert self.beside is not None
        served = self.residues & striping.residues_of(self.beside.slot)
        rest = self.residues - served
        assert self.position % striping.ensemble_size in served, "its slot holds the entry at the position"
        self.residues, self.slot, self.own, self.beside = served, self.beside.slot, self.beside, None
        return rest


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """Chooses the slots to ask within one fragment's ensemble."""

    ledger_id: int
    striping: Striping
    ensemble: tuple[str, ...]
    avoid: frozenset[str]
    """Bookies to ask last."""

    def cover(
        self, residues: frozenset[int], position: int, failures: dict[int, Failure]
    ) -> tuple[list[StripeRead], frozenset[int]]:
        """As few stripes as possible for the residues, and the residues that only slots in ``failures`` hold."""
        stripes: list[StripeRead] = []
        left = residues
        while usable := [s for s in range(len(self.ensemble)) if s not in failures and self.striping.residues_of(s) & left]:
            slot = self.best(usable, left, position)
            served = self.striping.residues_of(slot) & left
            stripes.append(StripeRead(slot, served, self.striping.next_id(served, position), dict(failures)))
            left = left - served
        covered = [residue for stripe in stripes for residue in stripe.residues]
        assert len(covered) + len(left) == len(residues), "every residue is read once"
        return stripes, left

    def best(self, slots: list[int], residues: frozenset[int], position: int) -> int:
        """Bookies to avoid come last, then the slot that serves most residues wins; ties are spread over ledgers and ranges."""

        def rank(slot: int) -> tuple[bool, int, int]:
            served = len(self.striping.residues_of(slot) & residues)
            return self.ensemble[slot] in self.avoid, -served, (slot - self.ledger_id - position) % len(self.ensemble)

        return min(slots, key=rank)

    def others(self, stripe: StripeRead) -> list[int]:
        """The other slots that may be asked for the entry at the stripe's position."""
        return [s for s in self.striping.holders(stripe.position) if s != stripe.slot and s not in stripe.failures]

    def verdict(self, entry_id: int, failures: dict[int, Failure]) -> BookKeeperError:
        """The error that follows if the whole write set failed. The entry is missing only if all its slots said so."""
        slots = sorted(self.striping.holders(entry_id))
        statuses = [failures[slot].status for slot in slots]
        if all(status is not None and status.verdict is Verdict.NEGATIVE for status in statuses):
            return NoSuchEntryError(self.ledger_id, entry_id)
        if all(status is None for status in statuses):
            return DigestMismatchError(self.ledger_id, entry_id)
        reasons = tuple(f"{self.ensemble[slot]}: {failures[slot].detail}" for slot in slots)
        return BookieUnavailableError(self.ledger_id, entry_id, reasons)


class Arrivals:
    """Verified entries of all stripes that cannot be delivered yet, because earlier entries are still missing."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._batches: list[EntryBatch] = []

    def add(self, batch: EntryBatch) -> None:
        self._batches.append(batch)
        self.nbytes += batch.nbytes

    def take_below(self, frontier: int) -> list[EntryBatch]:
        """The entries below ``frontier``, ascending: in the batches in which they came, or in one if these interleave."""
        cuts = [(batch, int(np.searchsorted(batch.entry_ids, frontier))) for batch in self._batches]
        ready = [batch if cut == len(batch) else batch.slice(0, cut) for batch, cut in cuts if cut]
        self._batches = [batch.slice(cut, len(batch) - cut) for batch, cut in cuts if cut < len(batch)]
        self.nbytes = sum(batch.nbytes for batch in self._batches)
        is_ascending = all(a.entry_ids[-1] < b.entry_ids[0] for a, b in pairwise(ready))
        return ready if is_ascending else [merged(ready)]


class Verifier:
    """Tells which entries of a bookie's answer are good."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._ledger_id = metadata.ledger_id
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._digester = Digester(metadata.digest_type, metadata.password)

    def good_prefix(
        self, encoded: EncodedBatch, residues: frozenset[int], position: int, last: int
    ) -> tuple[EntryBatch | None, Failure | None]:
        """The due entries from ``position`` to ``last`` before the first wrong one, and what is wrong with that one.

        Every entry is verified by itself, and has to be the next due one (docs/rules.md, protocol rule 58).
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
    """The slot's failure that the end of an answer from ``first`` on tells a stripe that reached ``position``, if any."""
    about = event.entry_id
    if event.status is Status.OK:
        return Failure(Status.UNKNOWN, "an answer without any entry") if position == first else None
    if about is not None and first <= about < position:
        return None  # about an entry of the slot that another stripe reads: ask again behind it
    failure = Failure(event.status, event.problem)
    if failure.is_of_entry and about not in (None, position):
        return Failure(Status.UNKNOWN, f"{failure.detail} (about entry {about}, where entry {position} was due)")
    return failure


def merged(batches: list[EntryBatch]) -> EntryBatch:
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


QUICK_MS = 250
"""For answers that take longer the few milliseconds between two requests hardly matter."""

MOST_GROWTH = 4
"""A request asks at most for this many times the bytes of the first one. With three messages of a MiB a third of the time
passes between two requests, with fifteen a tenth; but the more it is, the longer a bookie's readers wait for each other."""


class RequestSize:
    """How many bytes a reader's next request asks for.

    Nothing travels between two requests, so they ask for more while answers come quickly. If bookies have many readers answers
    are slow, and requests stay small, so that no reader waits for the long requests of others.
    """

    def __init__(self, first_bytes: int) -> None:
        self._first_bytes = first_bytes
        self.nbytes = first_bytes

    def answered(self, taken_ms: int) -> None:
        """A request was answered completely, within this time."""
        if taken_ms <= QUICK_MS:
            self.nbytes = min(2 * self.nbytes, MOST_GROWTH * self._first_bytes)
        else:
            self.nbytes = max(self.nbytes // 2, self._first_bytes)
        assert self._first_bytes <= self.nbytes <= MOST_GROWTH * self._first_bytes
