"""From appends to batches: the next entry ids, what the entries carry, and what each slot of the ensemble is sent.

Consecutive appends are sealed as one batch. Where the application chooses the entry ids (29), an append with an id that is
taken is a duplicate, and one beyond a gap is held until the gap is filled.

Worked example: entries up to 4 came; 6–7 is held, 5 goes through and takes 6–7 with it; then 7 is a duplicate.

A filled gap may free a whole window of single entries. They go out in few large batches, because one request for each would
keep healthy bookies busy beyond the add timeout.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort

import pyarrow as pa

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.pending_adds import PendingBatch
from bk_spark.config import MAX_BATCH_ENTRIES, MIB
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, EntryBatch, encode, seal
from bk_spark.entries.body_draft import BodyDraft
from bk_spark.entries.digest import Digester
from bk_spark.errors import DuplicateEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

RUN_BYTES = 1 * MIB
"""Payload bytes of held appends that go out as one batch: larger ones gain nothing measurable."""


class AppendBatches:
    """All appends of one writer, in the order of their ids. Of ``metadata`` it takes what never changes in a ledger."""

    def __init__(self, metadata: LedgerMetadata, last: int = NO_ENTRY, length: int = 0) -> None:
        self.last = last
        """The last entry in a batch."""
        self.length = length
        """The ledger's payload bytes up to and including ``last``."""
        self._metadata = metadata
        self._digester = Digester(metadata.digest_type, metadata.password)
        self._held = HeldAppends()

    def duplicate(self, append: sm.Append) -> DuplicateEntryError | None:
        """Why an append is refused, if one of its ids is taken."""
        first = append.first_entry_id
        if first is None:
            return None
        taken = first if first <= self.last else self._held.overlap(append)
        return None if taken is None else DuplicateEntryError(self._metadata.ledger_id, taken)

    def take(self, append: sm.Append) -> list[sm.Append]:
        """What to seal now: the append; nothing if it is held."""
        if append.first_entry_id is not None and append.first_entry_id > self.last + 1:
            self._held.hold(append)
            return []
        return [append]

    def followers(self) -> list[sm.Append]:
        """What to seal next: those that waited for the last batch; nothing if there are none."""
        return self._held.take(self.last + 1)

    def take_held(self) -> list[sm.Append]:
        """Take all that are held, ascending by id: they will never be sent."""
        return self._held.take_all()

    def seal(self, appends: list[sm.Append], last_add_confirmed: int, now_ms: int) -> PendingBatch:
        """The next batch: consecutive appends, which carry ``last_add_confirmed``."""
        counts = (len(append.payloads) for append in appends[:-1])
        firsts = itertools.accumulate(counts, initial=self.last + 1)
        tokens = tuple(zip((append.token for append in appends), firsts, strict=True))
        sealed = seal(
            self._digester,
            self._metadata.ledger_id,
            self.last + 1,
            pa.concat_arrays([append.payloads for append in appends]) if len(appends) > 1 else appends[0].payloads,
            length_before=self.length,
            last_add_confirmed=last_add_confirmed,
        )
        assert last_add_confirmed <= self.last, "no entry carries itself as confirmed"
        draft = appends[0].draft if len(appends) == 1 else None
        first, self.last, self.length = int(sealed.entry_ids[0]), int(sealed.entry_ids[-1]), int(sealed.lengths[-1])
        assert self.last - first + 1 == sum(len(append.payloads) for append in appends)
        return PendingBatch(first, self.last, self.length, tokens, now_ms, self._encoded_for_slots(sealed, draft))

    def _encoded_for_slots(self, sealed: EntryBatch, draft: BodyDraft | None) -> tuple[EncodedBatch | None, ...]:
        """What each slot is sent: without striping all get the same batch, which is encoded once."""
        size, digest_type = self._metadata.ensemble_size, self._metadata.digest_type
        if size == self._metadata.write_quorum:
            return (encode(sealed, digest_type, draft=draft),) * size
        return tuple(encode(sealed, digest_type, self._metadata.slot_pattern(slot)) for slot in range(size))


class HeldAppends:
    """Appends beyond a gap. They count in the writer's window, which bounds them."""

    def __init__(self) -> None:
        self._held: dict[int, sm.Append] = {}
        """By their first entry id."""
        self._firsts: list[int] = []
        """The keys of ``_held``, ascending."""

    def hold(self, append: sm.Append) -> None:
        """Keep an append that overlaps no held one."""
        assert self.overlap(append) is None
        self._held[_first(append)] = append
        insort(self._firsts, _first(append))

    def overlap(self, append: sm.Append) -> int | None:
        """The lowest id of ``append`` that is already held; None if there is none."""
        first = _first(append)
        after = bisect_right(self._firsts, first)
        if after > 0 and first <= _last(self._held[self._firsts[after - 1]]):
            return first
        return self._firsts[after] if after < len(self._firsts) and self._firsts[after] <= _last(append) else None

    def take(self, entry_id: int) -> list[sm.Append]:
        """Take the appends for one batch that starts at ``entry_id``, without a gap; none if that entry is not held."""
        run: list[sm.Append] = []
        count = nbytes = 0
        while (append := self._held.get(entry_id + count)) is not None:
            count, nbytes = count + len(append.payloads), nbytes + append.payloads.nbytes
            if run and (count > MAX_BATCH_ENTRIES or nbytes > RUN_BYTES):
                break
            run.append(append)
        for append in run:
            del self._held[_first(append)]
        del self._firsts[: len(run)]
        assert len(self._firsts) == len(self._held)
        assert not self._firsts or self._firsts[0] >= entry_id, "nothing that was sent is still held"
        return run

    def take_all(self) -> list[sm.Append]:
        """Take all, ascending by id: they will never be sent."""
        held, firsts = self._held, self._firsts
        self._held, self._firsts = {}, []
        return [held[first] for first in firsts]


def _first(append: sm.Append) -> int:
    assert append.first_entry_id is not None
    return append.first_entry_id


def _last(append: sm.Append) -> int:
    return _first(append) + len(append.payloads) - 1
