"""Which view of a log a user asks for. Imports no Arrow: Spark's look-up reads it."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.errors import ConfigError

ALL, LATEST = "all", "latest"
VIEWS = (ALL, LATEST)


@dataclass(frozen=True, slots=True)
class AskedView:
    """All rows, or the newest of each key without those that ``deleted_by`` names. Raises ConfigError."""

    view: str = ALL
    deleted_by: str | None = None
    view_name: str = "view"
    """What the user calls it."""
    deleted_by_name: str = "deleted_by"

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ConfigError(self.view_name, self.view, f"it must be {' or '.join(map(repr, VIEWS))}")
        if self.deleted_by is not None and not self.is_latest:
            remedy = f"it only works with {self.view_name} set to {LATEST!r}: give that, too, or leave it out"
            raise ConfigError(self.deleted_by_name, self.deleted_by, remedy)

    @property
    def is_latest(self) -> bool:
        return self.view == LATEST
