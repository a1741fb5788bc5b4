"""The paths of ledgers' znodes below the root of a cluster, as in Apache BookKeeper's three ledger managers.

==========================  =====================  ============================  ====================
layout                      ids                    path below the root           digits
==========================  =====================  ============================  ====================
``flat``                    up to 9,999,999,999    ``L0000000007``               10
``hierarchical`` (default)  up to 2**31 - 2        ``00/0000/L0007``             10, cut 2-4-4
 ...                        from 2**31 - 1 on      ``000/0000/0021/4748/L3647``  19, cut 3-4-4-4-4
``long-hierarchical``       up to 2**63 - 1        ``000/0000/0000/0000/L0007``  19, cut 3-4-4-4-4
==========================  =====================  ============================  ====================

A flat cluster is for up to some ten thousand ledgers: ZooKeeper can only list all names below a znode at once.

Ref: Apache BookKeeper's FlatLedgerManager, HierarchicalLedgerManager, LongHierarchicalLedgerManager; docs/formats.md.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from enum import Enum

LARGEST_INT = 2**31 - 1
"""The largest number that ZooKeeper gives a sequential znode. Apache BookKeeper uses the ones below it as ledger ids."""

MAX_LEDGER_ID = 2**63 - 1
"""The largest ledger id of all layouts, messages and files."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the digits of a range of ids (inclusive) are cut into path elements; the last element begins with ``L``."""

    widths: tuple[int, ...]
    first: int
    last: int

    @property
    def digits(self) -> int:
        return sum(self.widths)

    def path(self, ledger_id: int) -> str:
        """The path below the root, such as ``00/0000/L0007``."""
        digits = f"{ledger_id:0{self.digits}d}"
        starts = [0, *itertools.accumulate(self.widths[:-1])]
        parts = [digits[start:end] for start, end in itertools.pairwise(starts)]
        return "/".join([*parts, "L" + digits[starts[-1] :]])

    def names(self, level: int) -> re.Pattern[str]:
        """The names at a level: 0 is directly below the root, the last level has the ledgers."""
        prefix = "L" if level == len(self.widths) - 1 else ""
        return re.compile(rf"{prefix}[0-9]{{{self.widths[level]}}}")

    def largest_below(self, prefix: str) -> int:
        """The largest id whose digits begin with ``prefix``."""
        return int(prefix.ljust(self.digits, "9"))


_SHORT = (2, 4, 4)
_LONG = (3, 4, 4, 4, 4)
_CUTS = {
    "flat": (Cut((10,), 0, 9_999_999_999),),
    "hierarchical": (Cut(_SHORT, 0, LARGEST_INT - 1), Cut(_LONG, LARGEST_INT, MAX_LEDGER_ID)),
    "long-hierarchical": (Cut(_LONG, 0, MAX_LEDGER_ID),),
}
_FACTORIES = {"flat": "Flat", "hierarchical": "Hierarchical", "long-hierarchical": "LongHierarchical"}


class LedgerLayout(Enum):
    """The ledger manager of a cluster, chosen when the cluster is initialised. The values are its names for people."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "long-hierarchical"

    @property
    def stored(self) -> bytes:
        """The value of the LAYOUT znode: layout format version 2, the ledger manager's factory, its version 1."""
        return f"2\norg.apache.bookkeeper.meta.{_FACTORIES[self.value]}LedgerManagerFactory:1".encode()

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Ascending. Their names directly below the root differ in length, which tells them apart."""
        return _CUTS[self.value]

    @property
    def largest_id(self) -> int:
        """The largest id that has a path."""
        return self.cuts[-1].last

    def path(self, ledger_id: int) -> str:
        """The path of a ledger's metadata below the root."""
        cut = next((cut for cut in self.cuts if ledger_id <= cut.last), self.cuts[-1])
        return cut.path(ledger_id)

    @staticmethod
    def of_stored(value: bytes) -> LedgerLayout | None:
        """The layout that a value of the LAYOUT znode names; None if it is not one of these."""
        return next((layout for layout in LedgerLayout if layout.stored == value.strip()), None)
