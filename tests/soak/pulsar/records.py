"""What the clients wrote down (load/Records.java), and the judgement of it.

Nothing is trusted but these files: a message was acknowledged, received or read if it is in the file that says so, and files
keep the order in which messages came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = np.dtype(
    [("key", ">i4"), ("sequence", ">i4"), ("partition", ">i4"), ("batch", ">i4"), ("ledger", ">i8"), ("entry", ">i8")]
)
"""``batch`` is the place in a batch, -1 for a message that stands alone. ``ledger`` is -1 where the broker does not say: a
message that it dropped as a double."""

Records = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Judged:
    """Of one list of messages against what was acknowledged."""

    messages: int
    missing: int
    out_of_order: int
    doubled: int
    violations: tuple[str, ...]
    """One sentence for each kind."""


def read_file(path: Path) -> Records:
    return np.fromfile(path, RECORD)


def from_rows(rows: Iterable[tuple[int, ...]]) -> Records:
    """In the order of the dtype's fields."""
    return np.fromiter(rows, RECORD)


def ids(records: Records) -> Ids:
    """One number for each key and sequence."""
    return (records["key"].astype(np.int64) << 32) | records["sequence"].astype(np.int64)


def judge(what: str, acknowledged: Records, found: Records, *, is_ordered: bool = True, may_double: bool = True) -> Judged:
    """Each acknowledged message is found, and no other; the first occurrences of a key are in the order of sending."""
    wanted, there = ids(acknowledged), ids(found)
    missing = np.setdiff1d(wanted, there)
    unordered = _out_of_order(there) if is_ordered else there[:0]
    doubled = len(there) - len(np.unique(there))
    told = [
        f"{what}: {kind} {len(some)}, such as {_names(some)}"
        for kind, some in (("missing", missing), ("out of order", unordered), ("never sent", np.setdiff1d(there, wanted)))
        if len(some)
    ]
    if doubled and not may_double:
        told.append(f"{what}: doubled {doubled}, though the broker drops doubles")
    return Judged(len(there), len(missing), len(unordered), doubled, tuple(told))


def unlike(what: str, one: Records, other: Records) -> list[str]:
    """Both hold the same messages at the same places of the same ledgers."""
    told = []
    for kind, some in (("only in the first", np.setdiff1d(one, other)), ("only in the second", np.setdiff1d(other, one))):
        if len(some):
            told.append(f"{what}: {kind} {len(some)}, such as {some[:_SHOWN].tolist()}")
    return told


def _out_of_order(there: Ids) -> Ids:
    """Messages whose first occurrence comes after that of a later message of their key.

    Worked example: of one key 0, 1, 0, 1, 2 is in order, and of 0, 2, 1 the last is not.
    """
    first = there[np.sort(np.unique(there, return_index=True)[1])]
    by_key = first[np.argsort(first >> 32, kind="stable")]
    latest = np.maximum.accumulate(by_key)  # keys ascend, so the latest of a key is above all of the keys before it
    return by_key[by_key < latest]


def _names(some: Ids) -> str:
    return ", ".join(f"{one >> 32}/{one & 0xFFFFFFFF}" for one in some[:_SHOWN].tolist())
