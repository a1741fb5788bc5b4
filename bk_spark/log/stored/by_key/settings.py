"""How a log is compacted by key, and the column that tells where a row of a compacted ledger stood."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.errors import ConfigError
from bk_spark.log.stored.json_values import check_integer

PLACE = "_bk_spark_place"
"""Column of the rows of a span (int64): the row's number, less the first number of the span. No log has such a column."""

TOMBSTONES_KEPT_S = 86_400
"""A day: so long a stream may be away, and still hear that a key is gone."""


@dataclass(frozen=True, slots=True)
class KeyCompaction:
    """What a compaction by key keeps besides the newest row of each key. Raises ConfigError."""

    deleted_by: str | None = None
    """A boolean column: a row that has true there removes its key, and goes, too, once it is old enough. None: no row does."""
    min_age_s: int = 0
    """Rows younger than that stay, all of them, and remove no older ones."""
    tombstones_kept_s: int = TOMBSTONES_KEPT_S
    """How long a row that removes its key stays, from its commit on."""

    def __post_init__(self) -> None:
        if self.deleted_by is not None and (not isinstance(self.deleted_by, str) or not self.deleted_by):
            raise ConfigError("deleted_by", self.deleted_by, "it must be the name of a boolean column")
        for name in ("min_age_s", "tombstones_kept_s"):
            check_integer(name, getattr(self, name), 0)
