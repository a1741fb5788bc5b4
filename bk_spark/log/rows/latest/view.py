"""What a read with ``view=latest`` asks for: the columns that are a key, and what is true of a row before and after the choice.

The newest row of a key is the last one in the log's order among all rows that are read. A condition may leave rows out before
only if it leaves out all rows of a key, or none: so only its parts that look at key columns alone are pushed down.

Ref: DESIGN.md, "The newest row of each key".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.log.rows.latest.asked import AskedView
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.tier.asked_rows import AskedRows, check_values
from bk_spark.rows.reading import Added
from bk_spark.rows.where.filter import RowFilter


@dataclass(frozen=True, slots=True)
class LatestRows:
    """How to choose the newest rows of one version of a log. Pickles."""

    keys: tuple[pa.Field, ...]
    deleted_by: pa.Field | None
    before: RowFilter | None
    """The condition on key columns alone: it is true for all rows of a key, or for none."""
    after: RowFilter | None
    """The rest of the condition, of the newest row."""

    @property
    def of_keys(self) -> AskedRows:
        """The columns that the choice looks at. Rows that are never given may have wrong values."""
        return AskedRows(pa.schema(self._looked_at()), self.before, checks_values=False)

    def of_rows(self, schema: pa.Schema, added: Added | None = None) -> AskedRows:
        """The same rows in the same order, with the columns to give and those that ``after`` looks at."""
        tested = [] if self.after is None else [one for one in self.after.columns if one.name not in schema.names]
        return AskedRows(pa.schema([*schema, *tested]), self.before, added or {}, checks_values=False)

    def split(self, rows: pa.RecordBatch) -> tuple[Sequence[pa.Array], pa.Array | None]:
        """Key columns and tombstones of rows as ``of_keys`` gives them."""
        names = rows.schema.names
        keys = [rows.column(names.index(one.name)) for one in self.keys]
        return keys, None if self.deleted_by is None else rows.column(names.index(self.deleted_by.name))

    def given(self, chosen: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
        """Of chosen rows, as ``of_rows`` gives them, those to give, with the columns ``schema``. Raises WrongValueError."""
        rows = chosen if self.after is None else self.after.matching(chosen)
        if rows.num_columns > len(schema):
            rows = rows.select(schema.names)
        check_values(rows, what)
        return rows

    def _looked_at(self) -> list[pa.Field]:
        names = [one.name for one in self.keys]
        more = self.deleted_by
        return [*self.keys, *([more] if more is not None and more.name not in names else [])]


def latest_rows(asked: AskedView, what: str, stored: pa.Schema, lanes: Lanes, where: RowFilter | None) -> LatestRows:
    """``what``, a version of a log, has the columns ``stored``. Raises ConfigError where that has no key, or no such column."""
    if not lanes.columns:
        remedy = (
            f"{what} has no key, for none was given with its first rows: read all rows and group them, or overwrite the log "
            "with option 'partitionKey' (in Python append_rows(partition_key=…) to a new one)"
        )
        raise ConfigError(asked.view_name, asked.view, remedy)
    before, after = (None, None) if where is None else where.divided(lanes.columns)
    keys = tuple(stored.field(name) for name in lanes.columns)
    return LatestRows(keys, _tombstones(asked, what, stored), before, after)


def _tombstones(asked: AskedView, what: str, stored: pa.Schema) -> pa.Field | None:
    wanted = asked.deleted_by
    if wanted is None:
        return None
    alike = [name for name in stored.names if name.lower() == str(wanted).lower()]
    if not alike:
        raise ConfigError(asked.deleted_by_name, wanted, f"{what} has the columns {', '.join(stored.names)}")
    found = stored.field(wanted if wanted in alike else alike[0])
    if not pa.types.is_boolean(found.type):
        remedy = f"column '{found.name}' is {found.type}, and only a boolean says whether a row removes its key"
        raise ConfigError(asked.deleted_by_name, wanted, remedy)
    return found
