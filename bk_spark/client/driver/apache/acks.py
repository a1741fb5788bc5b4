"""Which adds the answers of an Apache bookie belong to. Pure.

A batch is sent as one ADD for each entry, and is answered once all of these are. An answer names ledger and entry id, not its
request, so it counts for the oldest batch that still waits for that entry. Answers come in any order, many at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from bk_spark.entries.batch import BatchHeader
from bk_spark.wire.apache.version_2 import CODES
from bk_spark.wire.messages import Status

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class SentBatch(Generic[T]):
    """A batch that was sent. ``token`` is for the caller."""

    header: BatchHeader
    token: T
    is_told: bool = False
    """A failure of one entry is told at once; the others' answers are still to come."""
    left: npt.NDArray[np.bool_] = field(init=False, repr=False)
    """For each id of the interval whether its answer is still to come."""

    def __post_init__(self) -> None:
        header = self.header
        self.left = header.pattern.mask(np.arange(header.first_entry_id, header.last_entry_id + 1))


class SentAdds(Generic[T]):
    """All batches of one connection."""

    def __init__(self) -> None:
        self._sent: dict[int, deque[SentBatch[T]]] = {}
        self.unanswered = 0
        """ADDs that were sent and are not answered."""

    def __bool__(self) -> bool:
        return bool(self._sent)

    def add(self, header: BatchHeader, token: T) -> None:
        """Before its first ADD is sent. Count its ADDs in ``unanswered`` as they are."""
        self._sent.setdefault(header.ledger_id, deque()).append(SentBatch(header, token))

    def answered(self, acks: npt.NDArray[np.void]) -> Iterator[tuple[T, Status, int]]:
        """Take answers in; gives the token, the status and the entry id of each batch whose outcome is known now."""
        ledger_ids = acks["ledger_id"].astype(np.int64)
        for ledger_id in np.unique(ledger_ids).tolist():
            sent = self._sent.get(ledger_id)
            if sent is not None:
                yield from self._of_ledger(sent, acks[ledger_ids == ledger_id])
                if not sent:
                    del self._sent[ledger_id]

    def take_all(self) -> list[T]:
        """The tokens of all batches that are not told yet: their connection broke."""
        tokens = [one.token for sent in self._sent.values() for one in sent if not one.is_told]
        self._sent.clear()
        self.unanswered = 0
        return tokens

    def _of_ledger(self, sent: deque[SentBatch[T]], acks: npt.NDArray[np.void]) -> Iterator[tuple[T, Status, int]]:
        ids, codes = acks["entry_id"].astype(np.int64), acks["code"].astype(np.int64)
        for batch in list(sent):
            if not len(ids):
                return
            is_mine = _taken(batch, ids)
            self.unanswered -= int(np.count_nonzero(is_mine))
            failed = np.flatnonzero(is_mine & (codes != 0))
            if len(failed) and not batch.is_told:
                batch.is_told = True
                yield batch.token, CODES.get(int(codes[failed[0]]), Status.UNKNOWN), int(ids[failed[0]])
            if not batch.left.any():
                sent.remove(batch)
                if not batch.is_told:
                    yield batch.token, Status.OK, batch.header.last_entry_id
            ids, codes = ids[~is_mine], codes[~is_mine]


def _taken(batch: SentBatch[T], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of ``ids``, each at its first place, the batch waited for; it does not any more."""
    header = batch.header
    places = np.flatnonzero((ids >= header.first_entry_id) & (ids <= header.last_entry_id))
    if (np.diff(ids[places]) <= 0).any():  # mostly they ascend, and each is the first of its id
        places = places[np.unique(ids[places], return_index=True)[1]]
    rows = ids[places] - header.first_entry_id
    waited = batch.left[rows]
    batch.left[rows] = False
    is_mine = np.zeros(len(ids), dtype=np.bool_)
    is_mine[places[waited]] = True
    return is_mine
