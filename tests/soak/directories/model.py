"""Which rows belong to which directory, whatever its name is now.

A directory is an object here, as it is an inode to the cluster. A copy is another object that begins with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(eq=False)
class Directory:
    """``path`` is None once it was removed."""

    path: Path | None
    confirmed: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)
    """Rows whose append failed, or was cut off: they may be there."""
    refusal: str = ""
    """A word of the sentence with which every start has to be refused; "" if it must succeed."""
    excuse: str = ""
    """Why a start may be refused, though it need not be; "" for no reason."""
    is_ended_properly: bool = True
    """Whether nothing runs in it, and the last that did ended by itself: then a copy is a snapshot."""
    is_killed: bool = False
    """Whether the process that would end the cluster properly was killed."""
    is_wounded: bool = False
    """Whether a bookie went back to an older copy: a second one is more than the cluster has to survive."""

    def copied(self, path: Path) -> Directory:
        return Directory(path, set(self.confirmed), set(self.possible), excuse=self.excuse, is_wounded=self.is_wounded)

    def wrong_rows(self, rows: list[str]) -> str:
        """What is wrong with what was read; "" for nothing."""
        found = set(rows)
        if len(found) < len(rows):
            return f"rows came twice: {sorted(row for row in found if rows.count(row) > 1)}"
        if missing := self.confirmed - found:
            return f"confirmed rows are missing: {sorted(missing)}"
        if foreign := found - self.confirmed - self.possible:
            return f"rows of another directory: {sorted(foreign)}"
        return ""


def is_sentence(error: str) -> bool:
    """Whether a refusal is one line of an error of ours that says what is wrong."""
    name, _, text = error.partition(": ")
    return name.endswith("Error") and len(text) > 20 and "Traceback" not in text and "[Errno" not in text
