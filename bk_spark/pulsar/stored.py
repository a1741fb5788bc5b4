"""What Pulsar keeps about topics in its metadata store and in ledgers, from bytes to values.

The nodes of managed ledgers and cursors hold a protobuf message, or the same compressed::

    int16 0x4778, int32 size of the head, head (CompressedInfo), compressed message

A plain message never begins with these bytes: its first byte is the tag of its first field. The nodes of schemas hold protobuf
messages, those of partitioned topics JSON.

Ref: MetaStoreImpl of managed-ledger, BookkeeperSchemaStorage of pulsar-broker; docs/formats.md, "Pulsar's entries".
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError, Message

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.proto import pulsar_pb2
from bk_spark.pulsar.compression import DamagedPayloadError, decompress
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.schemas import RAW, TYPES, TopicSchema, topic_schema

_HEAD: Final = struct.Struct(">Hi")
_MAGIC: Final = 0x4778

_Parsed = TypeVar("_Parsed", bound=Message)


@dataclass(frozen=True, slots=True)
class OffloadedCopy:
    """Where the copy of a ledger is in cheaper storage, as Pulsar noted it when it made it."""

    driver: str
    """Of Pulsar, such as ``aws-s3``."""
    uid: UUID | None
    """Names the copy; None for one of the streaming offload, which is laid out in another way."""
    bucket: str = ""
    region: str = ""
    endpoint: str = ""
    """Empty where the driver's own default holds, as ``region``."""


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger of a topic, as Pulsar lists it."""

    ledger_id: int
    entries: int
    """0 in one that Pulsar has not closed: the last one, or one that a broker left behind."""
    size: int
    """Payload bytes; 0 as ``entries``."""
    closed_ms: int
    """When Pulsar closed it, in milliseconds since 1970; 0 as ``entries``."""
    copy: OffloadedCopy | None = None
    """What Pulsar's offloader made of it, if that is complete."""
    is_on_bookies: bool = True
    """Whether Pulsar has not deleted it on the bookies after it was offloaded."""


@dataclass(frozen=True, slots=True)
class ManagedLedger:
    """The ledgers of one topic, or of one partition, in their order."""

    ledgers: tuple[StoredLedger, ...]
    terminated: Position | None = None
    """The last message, if the topic was ended for good."""


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """How far a durable subscription has read: all messages up to a position, included, are acknowledged."""

    cursors_ledger_id: int
    """The ledger whose last entry (``cursor_entry``) has the position; -1 if there is none."""
    stored_mark_delete: Position | None
    """The position as it was when this was written; brokers always write one, their format does not ask for it."""

    @property
    def mark_delete(self) -> Position | None:
        """The position, if no ledger has a newer one."""
        return self.stored_mark_delete if self.cursors_ledger_id == -1 else None


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Where one version of a schema is: an entry of a ledger, which ``schema_entry`` reads."""

    version: int
    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class SchemaLocator:
    """The versions of a topic's schema, ascending."""

    newest: SchemaVersion
    versions: tuple[SchemaVersion, ...]


def managed_ledger(topic: str, value: bytes) -> ManagedLedger:
    """The ledgers of a topic, from its node's value. Raises CorruptionError."""
    what = f"what Pulsar stores of topic '{topic}'"
    info = _parsed(pulsar_pb2.ManagedLedgerInfo(), _inflated(value, what), what)
    ended = info.terminatedPosition
    terminated = Position(ended.ledgerId, ended.entryId) if info.HasField("terminatedPosition") else None
    return ManagedLedger(tuple(map(_ledger, info.ledgerInfo)), terminated)


def cursor(value: bytes) -> StoredCursor:
    """How far a subscription has read, from its node's value. Raises CorruptionError."""
    what = "what Pulsar stores of a subscription"
    info = _parsed(pulsar_pb2.ManagedCursorInfo(), _inflated(value, what), what)
    is_stored = info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId")
    if not is_stored and info.cursorsLedgerId == -1:
        raise CorruptionError(what, "it has neither a position nor a ledger with one")
    position = Position(info.markDeleteLedgerId, info.markDeleteEntryId) if is_stored else None
    return StoredCursor(info.cursorsLedgerId, position)


def cursor_entry(entry: bytes) -> Position:
    """The position up to which all is acknowledged, from an entry of a cursor's ledger. Raises CorruptionError."""
    info = _parsed(pulsar_pb2.PositionInfo(), entry, "an entry of a cursor's ledger")
    return Position(info.ledgerId, info.entryId)


def partitions(value: bytes) -> int:
    """How many partitions a topic has, from its node below ``partitioned-topics``. Raises CorruptionError."""
    what = "the number of a topic's partitions"
    try:
        count = json.loads(value)["partitions"]
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptionError(what, f"no JSON object with it ({type(problem).__name__}: {problem})") from None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise CorruptionError(what, f"{count!r} is no number of partitions")
    return count


def schema_locator(value: bytes) -> SchemaLocator:
    """Where a topic's schemas are, from its node's value. Raises CorruptionError."""
    locator = _parsed(pulsar_pb2.SchemaLocator(), value, "the index of a topic's schemas")
    versions = sorted(map(_version, locator.index), key=lambda one: one.version)
    return SchemaLocator(_version(locator.info), tuple(versions))


def schema_entry(entry: bytes) -> TopicSchema:
    """A schema, from the entry that holds it. One that was deleted has the type NONE: the topic has no schema since then.

    Raises CorruptionError; ConfigError for a type that is newer than this program.
    """
    what = "a schema of a topic"
    stored = _parsed(pulsar_pb2.SchemaEntry(), entry, what)
    info = _decoded(pulsar_pb2.SchemaInfo(), stored.schema_data, what)
    if not info.HasField("type"):  # protobuf leaves out a number that its enum does not have
        raise ConfigError("the type of the topic's schema", None, f"this bk_spark does not know it: {RAW}")
    _check_whole(info, what)
    if info.deleted:
        return TopicSchema("NONE")
    return topic_schema(TYPES[info.type - 1], info.schema, {_text(pair.key): _text(pair.value) for pair in info.props})


def _ledger(info: pulsar_pb2.ManagedLedgerInfo.LedgerInfo) -> StoredLedger:
    context = info.offloadContext
    copy = _copy(context) if context.complete else None
    return StoredLedger(info.ledgerId, info.entries, info.size, info.timestamp, copy, not context.bookkeeperDeleted)


def _copy(context: pulsar_pb2.OffloadContext) -> OffloadedCopy:
    properties = {_text(pair.key): _text(pair.value) for pair in context.driverMetadata.properties}
    uid = UUID(int=(context.uidMsb % 2**64) << 64 | context.uidLsb % 2**64) if context.HasField("uidMsb") else None
    return OffloadedCopy(
        _text(context.driverMetadata.name) or "unnamed",
        None if context.offloadSegment else uid,
        properties.get("bucket", ""),
        properties.get("region", ""),
        properties.get("serviceEndpoint", ""),
    )


def _text(value: object) -> str:
    """A text of protobuf, which hands out bytes where they are not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _version(entry: pulsar_pb2.IndexEntry) -> SchemaVersion:
    return SchemaVersion(entry.version, entry.position.ledgerId, entry.position.entryId)


def _inflated(value: bytes, what: str) -> bytes:
    """The message that a node's value holds, plain or compressed."""
    if len(value) < _HEAD.size or _HEAD.unpack_from(value)[0] != _MAGIC:
        return value
    _, size = _HEAD.unpack_from(value)
    end = _HEAD.size + size
    if not _HEAD.size <= end <= len(value):
        raise CorruptionError(what, f"{len(value)} bytes do not hold a head of {size}")
    head = _parsed(pulsar_pb2.CompressedInfo(), value[_HEAD.size : end], what)
    try:
        return decompress(value[end:], head.compressionType, head.uncompressedSize)
    except DamagedPayloadError as problem:
        raise CorruptionError(what, str(problem)) from None


def _parsed(message: _Parsed, value: bytes, what: str) -> _Parsed:
    """``message``, filled from its bytes."""
    _check_whole(_decoded(message, value, what), what)
    return message


def _decoded(message: _Parsed, value: bytes, what: str) -> _Parsed:
    """The same, also where required fields are missing."""
    try:
        message.ParseFromString(value)
    except DecodeError as problem:
        raise CorruptionError(what, f"no protobuf message ({problem})") from None
    return message


def _check_whole(message: Message, what: str) -> None:
    if not message.IsInitialized():
        raise CorruptionError(what, "required fields are missing")
