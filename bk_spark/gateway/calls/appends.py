"""Appends: all rows of a call become one commit, or none do.

The caller says itself that it has sent all: by ``rows`` in the descriptor, or by ``{"end": true}`` as ``app_metadata`` of its
last message. The end of its stream says nothing, because that of a dead caller looks the same.

::

    what ends it                             what the log has            what the caller knows
    the caller dies before its end mark      nothing of it               that it must repeat
    it dies behind it                        the commit, or nothing      nothing: it repeats with its application's number
    the gateway dies before the commit       nothing of it               the call failed: it repeats
    … in or behind it, before the answer     the commit, or nothing      as above; another gateway answers "already"
    the answer was sent                      the commit, once            it is done

Ref: DESIGN.md, "The gateway".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, State
from bk_spark.gateway.calls.incoming import IncomingMessages
from bk_spark.gateway.calls.open_calls import OpenCall
from bk_spark.gateway.calls.statuses import CallerGoneError
from bk_spark.gateway.flight.batch_stream import IncomingBatches
from bk_spark.gateway.flight.given_fields import GivenFields
from bk_spark.gateway.flight.messages import FlightData
from bk_spark.gateway.flight.requests import AskedAppend
from bk_spark.gateway.rights import ANONYMOUS, CallerIdentity
from bk_spark.log.stored.values import LogVersion
from bk_spark.telemetry.metrics import GATEWAY_ROWS


class _EndMark:
    """Whether the caller said that this is the end."""

    def __init__(self) -> None:
        self.is_there = False

    def note(self, message: FlightData) -> None:
        """Called with each message before its batch is taken. Raises ConfigError."""
        if self.is_there:
            remedy = "a message follows the end mark: nothing was appended"
            raise ConfigError("the stream of rows", State("ended already"), remedy)
        if message.app_metadata:
            fields = GivenFields("the app_metadata", message.app_metadata)
            self.is_there = fields.flag("end")
            fields.end()


class WholeStream:
    """The rows of one append, which raises at its end unless the caller said that this is the end."""

    def __init__(self, call: OpenCall, messages: IncomingMessages, asked: AskedAppend) -> None:
        self._call = call
        self._asked = asked
        # Nothing that Arrow's reader holds may lead back to this object: no garbage collector sees a cycle through a reader.
        self._end = _EndMark()
        self._batches = IncomingBatches(messages, self._end.note)
        self.rows = 0

    def reader(self) -> pa.RecordBatchReader:
        """Waits for the caller's schema. Raises ConfigError."""
        return pa.RecordBatchReader.from_batches(self._batches.schema, self._checked())

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            wanted = self._asked.rows
            if wanted is not None and self.rows > wanted:
                raise ConfigError("'rows' in the descriptor", wanted, f"{self.rows} rows came: nothing was appended")
            yield batch
        self._check_end()

    def _check_end(self) -> None:
        """The last step before the commit."""
        wanted = self._asked.rows
        if wanted is None and not self._end.is_there:
            remedy = (
                "give 'rows' in the descriptor, or send {\"end\": true} as app_metadata of the last message: "
                "without that, a stream that was cut off looks whole, so nothing was appended"
            )
            raise ConfigError("the end of the rows", None, remedy)
        if wanted is not None and wanted != self.rows:
            raise ConfigError("'rows' in the descriptor", wanted, f"{self.rows} rows came: nothing was appended")
        if self._call.is_over:
            raise CallerGoneError


def append(client: BookKeeper, call: OpenCall, messages: IncomingMessages, asked: AskedAppend) -> bytes:
    """The answer, once the commit is there. Raises as ``Log.append_rows``, and what the caller's stream raises."""
    stream = WholeStream(call, messages, asked)
    own = replace(asked, application=own_application(call.identity, asked.application))
    version = _appended(client, stream.reader(), own)
    already = version.duplicate_of is not None
    GATEWAY_ROWS.labels("appended").inc(stream.rows)
    answer = {"version": version.duplicate_of if already else version.version, "rows": stream.rows, "already": already}
    return json.dumps(answer).encode()


def own_application(identity: CallerIdentity, application: tuple[str, int] | None) -> tuple[str, int] | None:
    """As the log keeps it: under the caller's identity, where that was proved.

    A log takes an application's number for all that it may append up to there. So whoever used the id of another one could
    have that one's rows taken for repeated ones.
    """
    if application is None or identity == ANONYMOUS:
        return application
    # Names of certificates may have slashes: quoted, none of them ends where an id begins.
    name = str(identity).replace("%", "%25").replace("/", "%2F")
    return f"{name}/{application[0]}", application[1]


def _appended(client: BookKeeper, rows: pa.RecordBatchReader, asked: AskedAppend) -> LogVersion:
    if asked.create:
        return client.append_rows(
            asked.log,
            rows,
            asked.application,
            create=True,
            merge_schema=asked.merge_schema,
            partition_key=asked.partition_key,
            lanes=asked.lanes,
        )
    log = client.open_log(asked.log)
    return log.append_rows(
        rows, asked.application, merge_schema=asked.merge_schema, partition_key=asked.partition_key, lanes=asked.lanes
    )
