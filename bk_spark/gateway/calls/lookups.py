"""Look-ups by key: batches of keys come, and for each one the newest rows go back."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import NoSuchLogError, SchemaMismatchError
from bk_spark.gateway.calls.incoming import IncomingMessages
from bk_spark.gateway.flight.batch_stream import IncomingBatches, batch_data, schema_data, small_batches
from bk_spark.gateway.flight.requests import AskedLookups
from bk_spark.log.log_handle import Log
from bk_spark.log.rows.read_rows import RowQuery

MOST_LOGS: Final = 4
"""Logs that are kept open for look-ups, those used last: each keeps up to 64 MiB of what entries say of their keys."""


class LookupLogs:
    """Logs that remember where keys are not. From any thread."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._logs: OrderedDict[str, Log] = OrderedDict()

    def get(self, name: str) -> Log:
        """The log that has this name now. Raises NoSuchLogError."""
        uid = self._client.logs.names.uid(name)
        with self._lock:
            found = self._logs.get(name)
            if found is None or found.uid != uid:
                found = self._logs[name] = self._client.open_log(name)
            self._logs.move_to_end(name)
            if len(self._logs) > MOST_LOGS:
                self._logs.popitem(last=False)
            return found

    def forget(self, name: str) -> None:
        with self._lock:
            self._logs.pop(name, None)


def look_up(logs: LookupLogs, messages: IncomingMessages, asked: AskedLookups) -> Iterator[bytes]:
    """Messages of Flight: the schema, then the rows of each batch of keys. Raises as ``Log.get_many``."""
    log = logs.get(asked.log)
    schema = RowQuery(asked.columns).bound(log.name, log.schema).schema
    yield schema_data(schema)
    for number, keys in enumerate(IncomingBatches(messages), 1):
        try:
            found = log.get_many(
                pa.Table.from_batches([keys]), columns=asked.columns, deleted_by=asked.deleted_by, version=asked.version
            )
        except NoSuchLogError:
            logs.forget(asked.log)
            raise
        if found.schema != schema:
            raise SchemaMismatchError(asked.log, "its columns changed during the look-ups: begin others")
        yield from _answer(found, number)


def _answer(found: pa.Table, number: int) -> Iterator[bytes]:
    """The last message for a batch of keys says which one is answered."""
    pieces = [piece for batch in found.to_batches() for piece in small_batches(batch)]
    if not pieces:
        pieces = [pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in found.schema], schema=found.schema)]
    for piece in pieces[:-1]:
        yield batch_data(piece)
    yield batch_data(pieces[-1], json.dumps({"answered": number}).encode())
