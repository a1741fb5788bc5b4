"""Judges an add of entry ids that are stored already: the same entries again, or others.

An id names one entry for ever. So what is stored stays, and an add may only say the same again:

- the add of a writer brings the same bytes: payload, length, last add confirmed and digest,
- the add of a recovery or a re-replication brings the same payload and length. It may carry another last add confirmed, and
  with it another digest, for a recovery writes entries back with the one at which it began.

Batches may be cut in another way than those that are stored, so entries are compared one by one, each with the newest stored
copy. A stored copy that cannot be read, or whose CRC digest is wrong, is *damaged* and says nothing: the add of a recovery
takes its place. A writer's add does so only with the very batch that the index describes.

Ref: docs/rules.md, protocol rule 33, storage rules 1 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from bk_spark.bookie.index.rows import BatchRow, row_of
from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode
from bk_spark.entries.digest import Digester
from bk_spark.errors import CorruptionError, StorageError

_CRCS = {kind: Digester(kind, b"") for kind in (DigestType.CRC32C, DigestType.CRC32)}
"""What shows damage to those who do not know the password."""

Read = Callable[[BatchRow], EncodedBatch]
"""The batch of a row, staged or durable. Raises CorruptionError, StorageError."""


class Judgement(Enum):
    """What to do with an add."""

    STORE = "it brings something new, or replaces a damaged copy"
    STORED = "all of it is here already, readable"
    OTHER = "another entry is stored under one of its ids"


@dataclass(frozen=True, slots=True)
class SecondAdd:
    """One add, to be judged against the rows whose intervals meet its own."""

    batch: EncodedBatch
    is_recovery: bool
    read: Read

    def judge(self, rows: Sequence[BatchRow]) -> Judgement:
        """Raises CorruptionError or StorageError if a writer's add meets a damaged copy of what may be another entry."""
        newest_first = sorted(rows, key=lambda row: row.sequence, reverse=True)
        has_digests = self.batch.header.digest_type is not DigestType.DUMMY
        if has_digests and newest_first and newest_first[0].identity == row_of(self.batch, 0, None).identity:
            return Judgement.STORED if self._is_readable(newest_first[0]) else Judgement.STORE
        return self._of_entries(newest_first)

    def _is_readable(self, row: BatchRow) -> bool:
        try:
            return bool(self.read(row))
        except (CorruptionError, StorageError):
            return False

    def _of_entries(self, newest_first: Sequence[BatchRow]) -> Judgement:
        """Compare each id with the newest row that holds it."""
        header = self.batch.header
        left = header.pattern.ids(header.first_entry_id, header.last_entry_id)
        entries: EntryBatch | None = None
        is_same = True
        for row in newest_first:
            held = (left >= row.first_entry_id) & (left <= row.last_entry_id) & row.pattern.mask(left)
            if held.any():
                entries = decode(self.batch) if entries is None else entries
                ids, left = left[held], left[~held]
                found = self._compare(row, entries.select(np.isin(entries.entry_ids, ids)))
                if found is Judgement.OTHER:
                    return Judgement.OTHER
                is_same &= found is Judgement.STORED
        return Judgement.STORED if is_same and not len(left) else Judgement.STORE

    def _compare(self, row: BatchRow, new: EntryBatch) -> Judgement:
        """What is found of entries whose newest copies are all in ``row``."""
        try:
            stored = decode(self.read(row))
        except (CorruptionError, StorageError):
            if self.is_recovery:
                return Judgement.STORE
            raise
        stored = stored.select(np.isin(stored.entry_ids, new.entry_ids))
        if _are_same_entries(stored, new):
            return Judgement.STORED
        if not self.is_recovery:
            return Judgement.OTHER
        is_other = ~_have_same_payloads(stored, new)
        crc = _CRCS.get(self.batch.header.digest_type)
        if crc is not None and is_other.any():
            is_other &= stored.matching(crc)
        return Judgement.OTHER if is_other.any() else Judgement.STORE


def _are_same_entries(stored: EntryBatch, new: EntryBatch) -> bool:
    numbers = ((stored.last_add_confirmed, new.last_add_confirmed), (stored.lengths, new.lengths))
    has_same_numbers = all(np.array_equal(one, other) for one, other in numbers)
    return has_same_numbers and stored.digests.equals(new.digests) and stored.payloads.equals(new.payloads)


def _have_same_payloads(stored: EntryBatch, new: EntryBatch) -> npt.NDArray[np.bool_]:
    """True for each entry with the same payload and length."""
    same: npt.NDArray[np.bool_] = stored.lengths == new.lengths
    if not stored.payloads.equals(new.payloads):
        same &= np.array([one == other for one, other in zip(stored.payloads, new.payloads, strict=True)], dtype=np.bool_)
    return same
