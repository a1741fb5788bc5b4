"""The list of a ledger's entries that a bookie has, in the form in which Apache's bookies tell it.

64 bytes of header: version (int32, 0), number of groups (int32), zeros. Then groups of 24 bytes: the first id of the group's
first sequence (int64) and of its last one (int64), the size of each sequence (int32), and the distance between their first ids
(int32, 0 for a single sequence). All numbers are big-endian.

Worked example: ids 0, 1, 3, 4, 6, 7, 9 are the sequences 0–1, 3–4, 6–7, 9: a group from 0 to 6 of size 2 and period 3, and a
group 9 of size 1.

Ref: Apache BookKeeper's AvailabilityOfEntriesOfLedger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from bk_spark.quorum import IdPattern

_HEADER = struct.Struct(">ii56x")
_GROUP = np.dtype([("first", ">i8"), ("last", ">i8"), ("size", ">i4"), ("period", ">i4")])

_Ids = npt.NDArray[np.int64]


def pack_availability(intervals: Iterable[tuple[int, int, IdPattern]]) -> bytes:
    """``intervals``: first and last id, both inclusive, and the pattern of the ids between. They may overlap."""
    starts, sizes = _sequences(intervals)
    groups = list(_groups(starts, sizes))
    packed = np.array(groups, dtype=_GROUP) if groups else np.empty(0, dtype=_GROUP)
    return _HEADER.pack(0, len(groups)) + packed.tobytes()


def _sequences(intervals: Iterable[tuple[int, int, IdPattern]]) -> tuple[_Ids, _Ids]:
    """Where each run of consecutive ids begins, ascending, and its size."""
    parts = [np.empty((0, 2), dtype=np.int64)]
    for first, last, pattern in intervals:
        parts.append(np.array([[first, last]]) if pattern.is_dense else _runs(pattern.ids(first, last)))
    runs = np.concatenate(parts)
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    if not len(runs):
        return runs[:, 0], runs[:, 1]
    reached = np.maximum.accumulate(runs[:, 1])
    begins = np.flatnonzero(np.concatenate([[True], runs[1:, 0] > reached[:-1] + 1]))
    ends = np.append(reached[begins[1:] - 1], reached[-1])
    starts = runs[begins, 0]
    return starts, ends - starts + 1


def _runs(ids: _Ids) -> _Ids:
    """First and last id of each run of consecutive ones."""
    breaks = np.flatnonzero(np.diff(ids) > 1)
    return np.stack([ids[np.append(0, breaks + 1)], ids[np.append(breaks, len(ids) - 1)]], axis=1)


def _groups(starts: _Ids, sizes: _Ids) -> Iterator[tuple[int, int, int, int]]:
    at = 0
    while at < len(starts):
        end, period = at + 1, 0
        if end < len(starts) and sizes[end] == sizes[at]:
            period = int(starts[end] - starts[at])
            alike = (np.diff(starts[at:]) == period) & (sizes[at + 1 :] == sizes[at])
            end = len(starts) if alike.all() else at + 1 + int(np.argmin(alike))
        yield int(starts[at]), int(starts[end - 1]), int(sizes[at]), period
        at = end
