"""Which lanes a read with ``view=latest`` reads together. Pure arithmetic.

Two lanes have no key in common, so each is read alone, and memory holds the keys of one. Small lanes are read together: to
read one takes some round trips, however few rows it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.log.stored.snapshot import LogSnapshot

SHARE_BYTES = 64 * 1024**2
"""Of payloads."""


def shares(stretches: Sequence[Stretch], lanes: Mapping[int, int], target: int = SHARE_BYTES) -> list[tuple[Stretch, ...]]:
    """The stretches of each lane, or of neighbouring lanes up to ``target`` bytes, in the order in which they come.

    ``lanes`` is the lane of each ledger. A ledger without one may have rows of every lane: then all are read together.
    """
    if any(one.ledger_id not in lanes for one in stretches):
        return [tuple(stretches)]
    sizes: dict[int, int] = {}
    for one in stretches:
        sizes[lanes[one.ledger_id]] = sizes.get(lanes[one.ledger_id], 0) + one.length
    share_of: dict[int, int] = {}
    number, size = -1, target + 1
    for lane in sorted(sizes):
        if size + sizes[lane] > target:
            number, size = number + 1, 0
        size += sizes[lane]
        share_of[lane] = number
    found: list[list[Stretch]] = [[] for _ in range(number + 1)]
    for one in stretches:
        found[share_of[lanes[one.ledger_id]]].append(one)
    return [tuple(share) for share in found]


def lanes_of_ledgers(snapshot: LogSnapshot) -> dict[int, int]:
    return {one.ledger_id: one.lane for one in snapshot.ledgers}
