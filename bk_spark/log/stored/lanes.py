"""Lanes: how a log spreads its rows over ledgers by key. A plain log has one lane and no key columns.

Every ledger that a log lists has the number of its lane, and its rows are of that lane alone. ``rows/lanes.py`` says in which
lane a row is.

Ref: docs/formats.md, "Lanes"; DESIGN.md, "Keys and lanes".
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.errors import ConfigError
from bk_spark.rows.lane_limits import MAX_KEY_COLUMNS, MAX_LANES


@dataclass(frozen=True, slots=True)
class Lanes:
    """The key columns of a log, the kind of each (``rows/lanes.py``), and how many lanes there are.

    Raises ConfigError unless it is a plain log's, or has a column and two lanes at least.
    """

    columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    count: int = 1

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= MAX_LANES:
            raise ConfigError("the number of lanes", self.count, f"it must be a whole number from 1 to {MAX_LANES}")
        is_plain = self.count == 1
        if is_plain == bool(self.columns) or len(self.columns) > MAX_KEY_COLUMNS or len(self.columns) != len(self.kinds):
            remedy = f"with more than one lane there are 1 to {MAX_KEY_COLUMNS} columns, each of one kind, and none otherwise"
            raise ConfigError("the list of key columns", self.columns, remedy)

    def __str__(self) -> str:
        return f"{self.count} lanes by {', '.join(self.columns)}" if self.columns else "one lane, without a key"


PLAIN = Lanes()
"""Those of a log without keys."""
