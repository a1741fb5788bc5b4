"""Entries that a recovery has read, as arrays: those in hand, and those that wait for an entry below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, EntryBatch, int64s
from bk_spark.entries.digest import payload_bytes, payload_sizes


@dataclass(frozen=True, slots=True)
class VerifiedEntries:
    """Entries whose digests are right, ascending by id, as parallel arrays of one length."""

    entry_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    """The ledger's payload bytes up to and including each entry."""
    payloads: pa.BinaryArray

    @staticmethod
    def of(batch: EntryBatch, mask: npt.NDArray[np.bool_]) -> VerifiedEntries:
        """Those of ``batch`` where ``mask`` is true; a part is copied, so that it does not keep the whole message in memory."""
        chosen = batch.select(mask)
        payloads = chosen.payloads if chosen is batch else pa.concat_arrays([chosen.payloads])
        return VerifiedEntries(chosen.entry_ids, chosen.lengths, payloads)

    def __len__(self) -> int:
        return len(self.entry_ids)

    @property
    def last(self) -> int:
        return int(self.entry_ids[-1])

    @property
    def nbytes(self) -> int:
        return payload_bytes(self.payloads) + len(self) * ENTRY_OVERHEAD_BYTES

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Payload bytes of each."""
        return payload_sizes(self.payloads)

    def slice(self, start: int, stop: int) -> VerifiedEntries:
        payloads = self.payloads.slice(start, stop - start)
        return VerifiedEntries(self.entry_ids[start:stop], self.lengths[start:stop], payloads)


class HeldEntries:
    """Entries that wait for lower ones, each once."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.nbytes = 0
        self._parts: list[VerifiedEntries] = []

    def add(self, entries: VerifiedEntries) -> None:
        """Entries that are not held yet."""
        if len(entries):
            self.ids.update(entries.entry_ids.tolist())
            self.nbytes += entries.nbytes
            self._parts.append(entries)

    def take_run(self, first: int) -> VerifiedEntries | None:
        """The entries from ``first``, the lowest that is wanted, to the next gap; None if it is missing itself."""
        if first not in self.ids:
            return None
        held = _in_order(self._parts)
        # Ascending ids without duplicates lie on id - row = first until there is a gap.
        count = int(np.searchsorted(held.entry_ids - np.arange(len(held)), first, side="right"))
        run = held.slice(0, count)
        self._parts = [held.slice(count, len(held))] if count < len(held) else []
        self.ids.difference_update(run.entry_ids.tolist())
        self.nbytes -= run.nbytes
        return run


def _in_order(parts: Sequence[VerifiedEntries]) -> VerifiedEntries:
    if len(parts) == 1:
        return parts[0]
    entry_ids = np.concatenate([one.entry_ids for one in parts])
    lengths = np.concatenate([one.lengths for one in parts])
    order = np.argsort(entry_ids)
    payloads = pa.concat_arrays([one.payloads for one in parts]).take(int64s(order))
    return VerifiedEntries(entry_ids[order], lengths[order], payloads)
