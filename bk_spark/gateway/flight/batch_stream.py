"""Record batches as messages of Flight, and messages as record batches. Pure.

What comes is not trusted. Before Arrow decodes a message, what it claims to hold is bounded: a few bytes can claim terabytes.
Afterwards the buffers of each column are checked against each other: Arrow itself would read behind their ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.entries.arrow_message import DictionaryFacts, SchemaBounds, batch_facts, check_schema, metadata_end
from bk_spark.errors import ConfigError, CorruptionError, State
from bk_spark.gateway.flight.expanded import expanded_bytes
from bk_spark.gateway.flight.messages import FlightData, encode_data
from bk_spark.gateway.flight.plain_schema import plain_schema, with_schema
from bk_spark.rows.arrow_types import MAX_LEVELS
from bk_spark.rows.codec import MAX_DECODED_BYTES, MAX_ROWS, cut
from bk_spark.rows.malformed import check_whole

MESSAGE_BYTES: Final = 2 * MIB
"""Of the rows of one message, if several rows fit: clients in Go take 4 MiB unless they are told otherwise."""

MESSAGE_ROWS: Final = 65_536

SCHEMA_BOUNDS: Final = SchemaBounds(fields=10_000, nbytes=4 * MIB, levels=MAX_LEVELS)
"""Of a caller's schema. To walk such a one and to build it takes some tenths of a second, in which nothing ends the call."""

WHAT: Final = "a batch that was sent"

_REFUSALS = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises for a message that is none. Its IOError is an OSError."""

_DICTIONARY_BYTES: Final = 4096
"""Of a message with a dictionary's values beside them, in Arrow's memory, with room: many with few values add up, too."""

_PREFIX = struct.Struct("<iI")
_CONTINUES = -1


def schema_data(schema: pa.Schema) -> bytes:
    """The first message of a stream."""
    message = memoryview(schema.serialize())
    return encode_data(message[_PREFIX.size : metadata_end(message, "the schema")], b"")


def batch_data(batch: pa.RecordBatch, app_metadata: bytes = b"") -> bytes:
    message = memoryview(batch.serialize())
    end = metadata_end(message, "the batch")
    return encode_data(message[_PREFIX.size : end], message[end:], app_metadata)


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, so that clients take each message."""
    return cut(batch, MESSAGE_ROWS, MESSAGE_BYTES)


class MessageSource(Protocol):
    """Where messages come from."""

    def next(self) -> FlightData | None:
        """The next one; None where the caller has sent all."""


class IncomingBatches:
    """The batches of a caller's stream, which begins with a schema. One thread uses it."""

    def __init__(self, messages: MessageSource, note: Callable[[FlightData], None] = lambda message: None) -> None:
        """``note`` is given each message, before the batch that is in it."""
        self._source = _Source(messages, note)
        self._reader: pa.RecordBatchReader | None = None
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """Waits for it. Of the metadata of its fields only comments stay (plain_schema.py). Raises ConfigError."""
        if self._schema is None:
            try:
                self._schema = plain_schema(self._opened().schema)
            except ValueError as problem:  # what Arrow reads and does not make itself, such as names that are no UTF-8
                raise _refused(problem) from None
        return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        reader, schema = self._opened(), self.schema
        try:
            batch = reader.read_next_batch()
            batch.validate()  # a length below 0 is a SystemError to all else
            for column in batch.columns:
                check_whole(column)
            nbytes = expanded_bytes(batch)
        except _REFUSALS as problem:
            raise _refused(problem) from None
        if nbytes > MAX_DECODED_BYTES:
            remedy = f"it may have {MAX_DECODED_BYTES} bytes: send smaller batches"
            raise ConfigError(f"the size without dictionaries, runs and views of {WHAT}", nbytes, remedy)
        return with_schema(batch, schema)

    def _opened(self) -> pa.RecordBatchReader:
        if self._reader is None:
            try:
                self._reader = pa.ipc.open_stream(self._source)
            except _REFUSALS as problem:
                raise _refused(problem) from None
        return self._reader


class _Source:
    """The messages as a file: Arrow's stream format, each message with its length before it.

    No read goes over the end of a message, so that a message which lies about its length is damage, and takes nothing of the
    next one.
    """

    closed = False

    def __init__(self, messages: MessageSource, note: Callable[[FlightData], None]) -> None:
        self._messages = messages
        self._note = note
        self._left: list[memoryview] = []
        """Of the message that is being read."""
        self._has_schema = False
        self._dictionaries: dict[int, int] = {}
        """What each dictionary takes, in bytes: Arrow keeps them until the stream ends, or until others replace them."""

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._take()
        if not self._left:
            return b""
        part = self._left[0]
        taken = bytes(part[:size]) if size >= 0 else bytes(part)
        rest = part[len(taken) :]
        self._left[:1] = [rest] if len(rest) else []
        return taken

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """What it reads from ends by itself."""

    def _take(self) -> None:
        while (message := self._messages.next()) is not None:
            self._note(message)
            if not len(message.header):
                continue
            if self._has_schema:
                self._check_claims(message)
            else:
                _check_schema(message)
            self._has_schema = True
            prefix = memoryview(_PREFIX.pack(_CONTINUES, len(message.header)))
            self._left = [part for part in (prefix, message.header, message.body) if len(part)]
            return

    def _check_claims(self, message: FlightData) -> None:
        try:
            facts = batch_facts(message.header, message.body, WHAT)
        except CorruptionError as problem:
            raise ConfigError(WHAT, State("malformed"), problem.problem) from None
        if facts.rows > MAX_ROWS:
            raise ConfigError(f"the number of rows of {WHAT}", facts.rows, f"it may have {MAX_ROWS}: send smaller batches")
        if facts.announced_bytes > MAX_DECODED_BYTES:
            remedy = f"it may have {MAX_DECODED_BYTES}: send smaller batches"
            raise ConfigError(f"the size before compression of {WHAT}", facts.announced_bytes, remedy)
        if facts.dictionary is not None:
            self._check_dictionaries(facts.dictionary, _DICTIONARY_BYTES + max(facts.announced_bytes, len(message.body)))

    def _check_dictionaries(self, given: DictionaryFacts, nbytes: int) -> None:
        before = self._dictionaries.get(given.dictionary_id, 0) if given.is_delta else 0
        self._dictionaries[given.dictionary_id] = before + nbytes
        total = sum(self._dictionaries.values())
        if total > MAX_DECODED_BYTES:
            remedy = (
                f"they may have {MAX_DECODED_BYTES} together: replace dictionaries in place of adding to them, or send values"
            )
            raise ConfigError("the size before compression of the dictionaries that were sent", total, remedy)


def _check_schema(message: FlightData) -> None:
    try:
        check_schema(message.header, SCHEMA_BOUNDS, WHAT)
    except CorruptionError as problem:
        raise ConfigError(WHAT, State("malformed"), problem.problem) from None


def _refused(problem: Exception) -> ConfigError:
    text = " ".join(str(problem).split())[:300]
    return ConfigError(WHAT, State("malformed"), f"it is no stream of Arrow record batches ({text})")
