"""Cursors show operators how far streams have read a log.

Spark keeps its own progress in its checkpoint, and no stream depends on a cursor. A named cursor (option ``cursorName``)
stays when its query ends. Any other cursor goes with the session of the process that published it. A stream lags behind by
``Head.end_row - Cursor.row`` rows, at least 0; where a compaction by key left rows out, at most as many as the log lists.
Rows of an open ledger are counted once it is closed.

Layout: docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.stored.json_values import decode, encode, flag, integer, text
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.positions import StreamPosition, position_of_offset
from bk_spark.metadata.store import ANY_VERSION, BadVersionError, MetadataStore, NodeExistsError, NoNodeError

MAX_CURSORS = 1000
"""Cursors of one log: they stand in one directory and are shown as one list."""

_TRIES = 20
"""Each further try means that another query published under the same name at the same moment."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one stream has read: finished batches have processed everything before ``position``."""

    name: str
    position: StreamPosition
    row: int
    """Number of the next row; inside a ledger of rows, estimated as if rows were spread evenly over entries."""
    is_named: bool
    time_ms: int = 0
    """When it was published, by the store's own clock. Not stored: it is the znode's time."""

    def lag(self, head: Head) -> int:
        """How many rows of closed ledgers were not read yet."""
        behind = max(0, head.end_row - self.row)
        return min(behind, head.total.rows) if head.total.gaps else behind


class LogCursors:
    """The cursors of all logs of one cluster."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def publish(self, log: str, uid: str, cursor: Cursor) -> None:
        """Store a cursor, in the place of the one with its name. It goes with this client's session, unless it is named.

        Raises NoSuchLogError, ConfigError where the log has MAX_CURSORS others, MetadataUnavailableError.
        """
        path = self._names.paths(uid).cursor(cursor.name)
        value = encode(name=cursor.name, offset=cursor.position.to_offset(uid), row=cursor.row, named=cursor.is_named)
        for _ in range(_TRIES):
            try:
                self._store.set(path, value, self._store.get(path).version)
                return
            except BadVersionError:
                continue
            except NoNodeError:
                self._check_free(log, uid)
            try:
                self._store.create(path, value, ephemeral=not cursor.is_named)
                return
            except (NodeExistsError, NoNodeError):
                continue  # a cursor of this name exists now, or the log is being deleted: the next try tells
        raise MetadataConflictError(f"cursor '{cursor.name}' of log '{log}'", "another query publishes it: give each its own")

    def all(self, log: str, uid: str) -> list[Cursor]:
        """Every cursor of a log, sorted by name. Raises NoSuchLogError."""
        paths = self._names.paths(uid)
        try:
            found = [f"{paths.cursors}/{name}" for name in self._store.children(paths.cursors)]
        except NoNodeError:
            self._names.head(log, uid)
            return []
        values = [value for value in self._store.get_many(found) if value is not None]
        return sorted((_cursor(log, uid, value.value, value.modified_ms) for value in values), key=lambda cursor: cursor.name)

    def remove(self, log: str, uid: str, name: str) -> None:
        """Forget a named cursor whose query will not run again. Raises ConfigError if there is none."""
        try:
            self._store.delete(self._names.paths(uid).cursor(name), ANY_VERSION)
        except NoNodeError:
            raise ConfigError("cursor", name, f"log '{log}' has no such cursor: 'bk-spark log show {log}' lists them") from None

    def _check_free(self, log: str, uid: str) -> None:
        self._names.head(log, uid)
        if self._store.get(self._names.paths(uid).cursors).children >= MAX_CURSORS:
            raise ConfigError(f"the number of cursors of log '{log}'", MAX_CURSORS, "it is the maximum: remove some first")


def _cursor(log: str, uid: str, value: bytes, time_ms: int) -> Cursor:
    def build(record: dict[str, Any]) -> Cursor:
        position = position_of_offset(record["offset"], log, uid)
        return Cursor(text(record["name"]), position, integer(record["row"]), flag(record["named"]), time_ms)

    return decode(f"a cursor of log '{log}'", value, build)
