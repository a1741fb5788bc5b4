"""How far the rows of a log are in its tier, as the log's head says it.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bk_spark.log.stored.json_values import integer, text


@dataclass(frozen=True, slots=True)
class StepName:
    """One step of a tier. ``attempt`` names the folder of the files that came into the table with it."""

    number: int
    step_id: str
    attempt: str

    def __str__(self) -> str:
        return f"{self.number}:{self.step_id}:{self.attempt}"

    @staticmethod
    def parse(name: str) -> StepName:
        """Raises ValueError."""
        number, step_id, attempt = name.split(":")
        return StepName(int(number), step_id, attempt)

    def is_step(self, other: StepName) -> bool:
        """Whether both are the same step, whatever attempt."""
        return (self.number, self.step_id) == (other.number, other.step_id)


NO_STEP = StepName(0, "", "")
"""The last step of a tier that had none."""


@dataclass(frozen=True, slots=True)
class TierMark:
    """How far a tier has come."""

    last: StepName = NO_STEP
    """The last step that is done."""
    boundary: int | None = None
    """The last ledger, in log order, that a section or the step under way holds; None for none. If the newest version does not
    list it, every listed ledger lies behind it."""
    sections: int = 0
    """They are numbered 0 to ``sections - 1``."""
    first: int = 0
    """The rows of the sections below are not in the table any more: the newest version lists none of their ledgers."""
    removed: int = 0
    """And so are those of this many first ledgers of section ``first``."""
    released: int = 0
    """The ledgers of the sections below may be gone from bookies."""
    cleared: int = 0
    """Those of the sections below are."""
    table_uuid: str = ""
    """The table's own id: one that is made anew under its name is another."""
    oldest: int = 0
    """The records of the sections below are deleted: no version that can be read lists their ledgers."""
    vacuumed_version: int = 0
    """The log's own, when the files and snapshots of the tier that nobody needs were last deleted; -1 while that goes on."""

    def stored(self) -> dict[str, object]:
        return {**asdict(self), "last": str(self.last)}

    @staticmethod
    def read(value: dict[str, Any]) -> TierMark:
        """Raises ValueError, KeyError, TypeError."""
        boundary, sections = value["boundary"], integer(value["sections"], 0)
        return TierMark(
            StepName.parse(text(value["last"])),
            None if boundary is None else integer(boundary, 0),
            sections,
            integer(value["first"], 0, sections),
            integer(value["removed"], 0),
            integer(value["released"], 0, sections),
            integer(value["cleared"], 0, sections),
            text(value["table_uuid"]),
            integer(value["oldest"], 0, sections),
            integer(value["vacuumed_version"], -1),
        )
