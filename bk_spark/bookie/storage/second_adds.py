"""Judges an add of entry ids that are stored already: the same entries again, or others.

An id names one entry for ever. So what is stored stays, and an add may only say the same again:

- the add of a writer brings the same bytes: payload, length, last add confirmed and digest,
- the add of a recovery or a re-replication brings the same payload. It may carry another last add confirmed or length, and
  with it another digest: a recovery writes entries back with the one at which it began, and with lengths that add up.

Batches may be cut in another way than those that are stored, so entries are compared one by one, each with the newest stored
copy. A stored copy that cannot be read, or whose CRC digest is wrong, is *damaged* and says nothing: the add of a recovery
takes its place. A writer's add does so only with the very batch that the index describes. Entries that came over Apache's wire
are compared as they are.

Ref: docs/rules.md, protocol rule 33, storage rules 1 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bk_spark.bookie.index.values import StoredBatch, stored_batch
from bk_spark.config import DigestType
from bk_spark.entries.apache_entries import apache_entries, decode_as
from bk_spark.entries.batch import EncodedBatch, EntryBatch
from bk_spark.entries.digest import DIGEST_BYTES, Digester
from bk_spark.entries.entry_bytes import HEADER_BYTES
from bk_spark.errors import CorruptionError, StorageError

_CRCS = {kind: Digester(kind, b"") for kind in (DigestType.CRC32C, DigestType.CRC32)}
"""What shows damage to those who do not know the password."""

_CRC_OF_WHOLE = {DIGEST_BYTES[kind]: digester for kind, digester in _CRCS.items()}
"""The same by width."""

Ids: TypeAlias = npt.NDArray[np.int64]

Read = Callable[[StoredBatch], EncodedBatch]
"""The bytes of a stored batch, staged or durable. Raises CorruptionError, StorageError."""


class Judgement(Enum):
    """What to do with an add."""

    STORE = "it brings something new, or replaces a damaged copy"
    STORED = "all of it is here already, readable"
    OTHER = "another entry is stored under one of its ids"


@dataclass(frozen=True, slots=True)
class SecondAdd:
    """One add, to be judged against the stored batches whose intervals meet its own."""

    batch: EncodedBatch
    is_recovery: bool
    read: Read

    def judge(self, batches: Sequence[StoredBatch]) -> Judgement:
        """Raises CorruptionError or StorageError if a writer's add meets a damaged copy of what may be another entry."""
        newest_first = sorted(batches, key=lambda stored: stored.sequence, reverse=True)
        has_digests = self.batch.header.digest_type not in (None, DigestType.DUMMY)
        if has_digests and newest_first and newest_first[0].identity == stored_batch(self.batch, 0, None).identity:
            return Judgement.STORED if self._is_readable(newest_first[0]) else Judgement.STORE
        return self._of_entries(newest_first)

    def _is_readable(self, stored: StoredBatch) -> bool:
        try:
            return bool(self.read(stored))
        except (CorruptionError, StorageError):
            return False

    def _of_entries(self, newest_first: Sequence[StoredBatch]) -> Judgement:
        """Compare each id with the newest stored batch that holds it."""
        header = self.batch.header
        left = header.pattern.ids(header.first_entry_id, header.last_entry_id)
        is_same = True
        for stored in newest_first:
            held = (left >= stored.first_entry_id) & (left <= stored.last_entry_id) & stored.pattern.mask(left)
            if held.any():
                ids, left = left[held], left[~held]
                found = self._compare(stored, ids)
                if found is Judgement.OTHER:
                    return Judgement.OTHER
                is_same &= found is Judgement.STORED
        return Judgement.STORED if is_same and not len(left) else Judgement.STORE

    def _compare(self, newest: StoredBatch, ids: Ids) -> Judgement:
        """What is found of the entries ``ids``, whose newest copies are all in ``newest``."""
        try:
            copies = self.read(newest)
        except (CorruptionError, StorageError):
            if self.is_recovery:
                return Judgement.STORE
            raise
        digest_type = self.batch.header.digest_type or copies.header.digest_type
        if digest_type is None:
            return self._compare_whole(copies, ids)
        try:
            stored, new = (_of_ids(decode_as(batch, digest_type), ids) for batch in (copies, self.batch))
        except CorruptionError:  # of whole entries, which do not have this digest
            return Judgement.OTHER
        if _are_same_entries(stored, new):
            return Judgement.STORED
        if not self.is_recovery:
            return Judgement.OTHER
        is_other = ~_have_same_payloads(stored, new)
        crc = _CRCS.get(digest_type)
        if crc is not None and is_other.any():
            is_other &= stored.matching(crc)
        return Judgement.OTHER if is_other.any() else Judgement.STORE

    def _compare_whole(self, copies: EncodedBatch, ids: Ids) -> Judgement:
        stored, new = (one.select(np.isin(one.entry_ids, ids)).entries for one in map(apache_entries, (copies, self.batch)))
        if stored.equals(new):
            return Judgement.STORED
        pairs = zip(stored.to_pylist(), new.to_pylist(), strict=True)
        may_replace = self.is_recovery and all(one == other or is_copy(one, other) for one, other in pairs)
        return Judgement.STORE if may_replace else Judgement.OTHER


def _of_ids(batch: EntryBatch, ids: Ids) -> EntryBatch:
    return batch.select(np.isin(batch.entry_ids, ids))


def _are_same_entries(stored: EntryBatch, new: EntryBatch) -> bool:
    numbers = ((stored.last_add_confirmed, new.last_add_confirmed), (stored.lengths, new.lengths))
    has_same_numbers = all(np.array_equal(one, other) for one, other in numbers)
    return has_same_numbers and stored.digests.equals(new.digests) and stored.payloads.equals(new.payloads)


def _have_same_payloads(stored: EntryBatch, new: EntryBatch) -> npt.NDArray[np.bool_]:
    """True for each entry with the same payload."""
    if stored.payloads.equals(new.payloads):
        return np.ones(len(stored), dtype=np.bool_)
    return np.array([one == other for one, other in zip(stored.payloads, new.payloads, strict=True)], dtype=np.bool_)


def is_copy(stored: bytes, new: bytes) -> bool:
    """Whether a recovery may replace one whole entry by another: the payload is the same, or the stored one is damaged.

    The digest's width is known only if the new entry has a CRC. Otherwise as many bytes as the widest has are left out.
    """
    width = next((width for width, digest in _CRC_OF_WHOLE.items() if _verifies(new, width, digest)), None)
    if width is not None and not _verifies(stored, width, _CRC_OF_WHOLE[width]):
        return True
    begin = HEADER_BYTES + (max(DIGEST_BYTES.values()) if width is None else width)
    return len(stored) == len(new) and stored[begin:] == new[begin:]


def _verifies(entry: bytes, width: int, digester: Digester) -> bool:
    end = HEADER_BYTES + width
    return len(entry) >= end and digester.of_bytes(entry[:HEADER_BYTES] + entry[end:]) == entry[HEADER_BYTES:end]
