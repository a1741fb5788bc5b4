"""Cursors: how far streams have read a log, where an operator can see it.

Spark keeps its own progress in the checkpoint; nothing of a stream rests on a cursor. A named one (option ``cursorName``)
stays when its query ends, another one goes with the session of the process that published it. How many rows a stream is
behind is ``Head.end_row - Cursor.row``, not below 0: rows of a ledger that is still open are counted once it is closed.

Layout: docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bk_spark.client.log.stored.json_values import decode, encode, flag, integer, text
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.values import Head
from bk_spark.client.log.stream.positions import StreamPosition, position_of_offset
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError, NoNodeError

MAX_CURSORS = 1000
"""Of one log: they stand in one directory and are shown as one list."""

_TRIES = 20
"""Each of them means that another query published under the same name at the same moment."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one stream has read: everything before ``position`` was processed by a batch that is done."""

    name: str
    position: StreamPosition
    row: int
    """The row number of the next row; inside a ledger of rows, as if they were spread evenly over its entries."""
    is_named: bool
    time_ms: int = 0
    """When it was published, by the store's own clock. Not stored: it is the time of the value."""

    def lag(self, head: Head) -> int:
        """Rows that are in closed ledgers and were not read."""
        return max(0, head.end_row - self.row)


class LogCursors:
    """The cursors of all logs of one cluster."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def publish(self, log: str, uid: str, cursor: Cursor) -> None:
        """Store a cursor in the place of the one of its name. An ephemeral one goes with this client's session.

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
                continue  # the one of its name is there now, or the log goes: the next look tells
        raise MetadataConflictError(f"cursor '{cursor.name}' of log '{log}'", "another query publishes it: give each its own")

    def all(self, log: str, uid: str) -> list[Cursor]:
        """Every cursor of a log, by name. Raises NoSuchLogError."""
        paths = self._names.paths(uid)
        try:
            found = [f"{paths.cursors}/{name}" for name in self._store.children(paths.cursors)]
        except NoNodeError:
            self._names.head(log, uid)
            return []
        cursors = []
        for value in self._store.get_many(found):
            if value is not None:
                cursors.append(_cursor(log, uid, value.value, value.modified_ms))
        return sorted(cursors, key=lambda cursor: cursor.name)

    def remove(self, log: str, uid: str, name: str) -> None:
        """Forget a named cursor whose query will not run again. Raises ConfigError where there is none."""
        try:
            self._store.delete(self._names.paths(uid).cursor(name))
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
