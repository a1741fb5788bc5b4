"""Messages between clients and bookies in their protobuf form.

Everything from the network is checked here first: a message that is malformed, above a limit or of a newer version raises,
and never reaches protocol or storage code. Adds and the answers to reads are written out by hand, because they carry the
entries and have to be fast; the other messages are tables of fields.

Ref: proto/bookie.proto; docs/formats.md, "The wire".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from bk_spark.config import DigestType
from bk_spark.entries.batch import MAX_ENTRY_ID, NO_ENTRY, BatchHeader, EncodedBatch
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import IdPattern
from bk_spark.wire import messages
from bk_spark.wire.body import with_body, without_body
from bk_spark.wire.messages import (
    MAX_NAMED_LEDGERS,
    MAX_TEXT,
    NO_KEY,
    OPEN_VERSION,
    PROTOCOL_VERSION,
    AddReply,
    AddRequest,
    ReadBatch,
    ReadEnd,
    Status,
    version_of,
)

_STATUSES: dict[int, Status] = {status.value: status for status in Status}
_DIGEST_TYPES = {digest_type.value: digest_type for digest_type in DigestType}
_WHOLE = 0
"""In place of a digest type: a batch of whole entries."""

LARGE_BYTES = 16 * 1024
"""Adds of at least this size bypass protobuf's copies of the body (body.py); below it protobuf is as quick."""

_KEPT_PATTERNS = 256
"""More than the slots of all shapes of ensembles that a cluster uses."""

# Adds and answers to reads


def encode_add_request(request: AddRequest, *, with_its_body: bool = True) -> pb.AddRequest:
    return pb.AddRequest(
        version=version_of(request.master_key),
        request_id=request.request_id,
        bookie_id=request.bookie_id,
        master_key=request.master_key,
        header=_encode_header(request.batch.header),
        body_crc32c=request.batch.body_crc32c,
        body=bytes(request.batch.body) if with_its_body else b"",
        recovery=request.recovery,
        deferred_sync=request.deferred_sync,
    )


def pack_add_request(request: AddRequest, request_id: int) -> bytes:
    """The request serialized, with ``request_id`` in place of its own."""
    body, is_large = request.batch.body, len(request.batch.body) >= LARGE_BYTES
    message = encode_add_request(request, with_its_body=not is_large)
    message.request_id = request_id
    packed = bytes(message.SerializeToString())
    return with_body(packed, pb.AddRequest.BODY_FIELD_NUMBER, body) if is_large else packed


def unpack_add_request(data: bytes) -> tuple[pb.AddRequest, memoryview | None]:
    """The message, and its body if the message was parsed without it. Raises protobuf's DecodeError, CorruptionError."""
    if len(data) < LARGE_BYTES:
        return pb.AddRequest.FromString(data), None
    others, body = without_body(memoryview(data), pb.AddRequest.BODY_FIELD_NUMBER, "an add request")
    return pb.AddRequest.FromString(others), body


def decode_add_request(message: pb.AddRequest, body: bytes | memoryview | None = None) -> AddRequest:
    """Pass ``body`` if the message was parsed without it.

    Raises FormatVersionError or CorruptionError, also for a body with a wrong checksum, above its bounds or without the entries
    that its header names.
    """
    _check_version("an add request", message.version)
    _check_text_and_key(message.bookie_id, message.master_key)
    batch = EncodedBatch(_decode_header(message.header), message.body if body is None else body, message.body_crc32c)
    request = AddRequest(
        message.request_id, message.bookie_id, message.master_key, batch, message.recovery, message.deferred_sync
    )
    return checked_add(request)


def checked_add(request: AddRequest) -> AddRequest:
    """The same request. Raises CorruptionError unless its batch is one that a client of this package may add."""
    batch = request.batch
    if batch.header.is_apache:
        raise CorruptionError("an add", "its entries are whole: only Apache's clients add these")
    batch.check()
    batch.check_entries()
    if not request.recovery and not batch.header.is_below_its_entries:
        confirmed = batch.header.last_add_confirmed
        raise CorruptionError("a writer's add", f"last add confirmed {confirmed} is not below its entries")
    return request


def encode_add_reply(reply: AddReply) -> pb.AddReply:
    return pb.AddReply(request_id=reply.request_id, status=reply.status.value, detail=reply.detail[:MAX_TEXT], boot=reply.boot)


def decode_add_reply(message: pb.AddReply) -> AddReply:
    return AddReply(message.request_id, status_of(message.status), printable(message.detail), message.boot)


def encode_read_reply(reply: ReadBatch | ReadEnd) -> bytes:
    """Serialized, for ``decode_read_reply``. Protobuf does not see the body (body.py)."""
    if isinstance(reply, ReadEnd):
        end = pb.ReadReply(status=reply.status.value, entry_id=reply.next_entry_id, detail=reply.detail[:MAX_TEXT])
        return bytes(end.SerializeToString())
    batch = reply.batch
    others = pb.ReadReply(status=pb.OK, header=_encode_header(batch.header), body_crc32c=batch.body_crc32c)
    return with_body(others.SerializeToString(), pb.ReadReply.BODY_FIELD_NUMBER, batch.body)


def decode_read_reply(data: bytes) -> ReadBatch | ReadEnd:
    """Raises CorruptionError. The batch's body is a view of ``data``."""
    what = "an answer to a read"
    others, body = without_body(memoryview(data), pb.ReadReply.BODY_FIELD_NUMBER, what)
    try:
        message = pb.ReadReply.FromString(others)
    except DecodeError as problem:
        raise CorruptionError(what, f"no message ({problem})") from None
    if not message.HasField("header"):
        # A read up to the largest id of all ends at the id after it.
        _check_entry_id("the end of an answer to a read", message.entry_id, 0, MAX_ENTRY_ID + 1)
        return ReadEnd(status_of(message.status), message.entry_id, printable(message.detail))
    return ReadBatch(EncodedBatch(_decode_header(message.header), body, message.body_crc32c))


def _encode_header(header: BatchHeader) -> pb.BatchHeader:
    return pb.BatchHeader(
        ledger_id=header.ledger_id,
        first_entry_id=header.first_entry_id,
        last_entry_id=header.last_entry_id,
        pattern=_encode_pattern(header.pattern),
        last_add_confirmed=header.last_add_confirmed,
        length_before=header.length_before,
        digest_type=header.digest_type.value if header.digest_type else _WHOLE,
        mixed_lac=header.mixed_lac,
    )


def _decode_header(message: pb.BatchHeader) -> BatchHeader:
    return BatchHeader(
        message.ledger_id,
        message.first_entry_id,
        message.last_entry_id,
        _decode_pattern(message.pattern),
        message.last_add_confirmed,
        message.length_before,
        digest_type_of(message.digest_type),
        message.mixed_lac,
    )


# Fields, converted and checked


def digest_type_of(number: int) -> DigestType | None:
    """None for whole entries. Raises CorruptionError."""
    digest_type = _DIGEST_TYPES.get(number)
    if digest_type is None and number != _WHOLE:
        raise CorruptionError("a batch header", f"unknown digest type {number}")
    return digest_type


def status_of(number: int) -> Status:
    """The status of a newer bookie, or a missing one, is unknown, never negative."""
    return _STATUSES.get(number, Status.UNKNOWN)


def printable(text: str) -> str:
    """Text of another process, fit to be shown and logged: cut, and without characters that move a terminal's cursor."""
    cut = text[:MAX_TEXT]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def _encode_pattern(pattern: IdPattern) -> pb.IdPattern:
    return pb.IdPattern(ensemble_size=pattern.ensemble_size, write_quorum=pattern.write_quorum, slot=pattern.slot)


def _decode_pattern(message: pb.IdPattern) -> IdPattern:
    return pattern_of(message.ensemble_size, message.write_quorum, message.slot)


def pattern_of(ensemble_size: int, write_quorum: int, slot: int) -> IdPattern:
    """Raises CorruptionError."""
    try:
        return _pattern(ensemble_size, write_quorum, slot)
    except BookKeeperError as problem:
        raise CorruptionError("a message's id pattern", str(problem)) from None


_pattern = lru_cache(_KEPT_PATTERNS)(IdPattern)
"""A pattern is checked when it is made, which takes as long as all the rest of a header."""


def _decode_figures(figures: Mapping[str, int]) -> dict[str, int]:
    if len(figures) > messages.MAX_FIGURES:
        raise CorruptionError("an answer to an operation", f"it has {len(figures)} figures")
    return {printable(name): value for name, value in figures.items()}


def _check_version(what: str, version: int) -> None:
    if version > PROTOCOL_VERSION:
        raise FormatVersionError(what, version, PROTOCOL_VERSION)
    if version < 1:
        raise CorruptionError(what, f"its version is {version}")


def _check_text_and_key(bookie_id: str, master_key: bytes) -> None:
    if len(bookie_id) > MAX_TEXT:
        raise CorruptionError("a request", f"a bookie id of {len(bookie_id)} characters")
    if len(master_key) != messages.MASTER_KEY_BYTES:
        raise CorruptionError("a request", f"a master key of {len(master_key)} bytes, it has {messages.MASTER_KEY_BYTES}")


def _check_entry_id(what: str, entry_id: int, least: int, most: int, problem: str = "it names entry") -> None:
    if not least <= entry_id <= most:
        raise CorruptionError(what, f"{problem} {entry_id}")


# Tables: every other message


def _same(value: Any) -> Any:
    return value


def _proof(proof: bytes | None) -> bytes | None:
    if proof is not None and len(proof) > messages.MAX_PROOF_BYTES:
        raise CorruptionError("a last add confirmed to store", f"a proof of {len(proof)} bytes")
    return proof


def _first_texts(ledgers: Mapping[int, str], convert: Callable[[str], str]) -> dict[int, str]:
    """What is said of the first MAX_NAMED_LEDGERS ledgers."""
    return {ledger_id: convert(ledgers[ledger_id]) for ledger_id in sorted(ledgers)[:MAX_NAMED_LEDGERS]}


_Conversion = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Makes a message's field of a value's, and the other way round."""

_CONVERSIONS: dict[str, _Conversion] = {
    "status": (lambda status: status.value, status_of),
    "detail": (lambda text: text[:MAX_TEXT], printable),
    "pattern": (_encode_pattern, _decode_pattern),
    "wait_ms": (_same, lambda wait_ms: min(wait_ms, messages.MAX_WAIT_MS)),
    "program_version": (_same, printable),
    "proof": (_same, _proof),
    "figures": (_same, _decode_figures),
    "ledgers": (
        lambda ledgers: _first_texts(ledgers, lambda text: text[:MAX_TEXT]),
        lambda ledgers: _first_texts(ledgers, printable),
    ),
}
"""By the name of the field; fields that are not listed are the same in both forms."""

_WIRE_NAMES = {"first": "first_entry_id", "last": "last_entry_id", "is_fenced": "fenced"}
"""Fields that have another name in the message than in the value."""

_Value = TypeVar("_Value")
_Message = TypeVar("_Message", bound=Message)


def _codec(
    what: str,
    value_type: type[_Value],
    message_type: type[_Message],
    *,
    entry_ids: Mapping[str, str] | None = None,
    check: Callable[[str, Any], None] = lambda what, message: None,
    conversions: Mapping[str, _Conversion] = _CONVERSIONS,
) -> tuple[Callable[[_Value], _Message], Callable[[_Message], _Value]]:
    """The functions that encode and decode one kind of message, which errors call ``what``.

    The fields are those of the dataclass ``value_type``; one that the message lacks keeps its default. ``decode`` checks the
    version, the master key and the ledger id where the message has them, then ``check``, then ``entry_ids``: the names of
    fields that must hold an entry id or NO_ENTRY, each with what an error says of another value. It raises
    FormatVersionError for a newer version, else CorruptionError.
    """
    in_message = message_type.DESCRIPTOR.fields_by_name
    wire_names = {field.name: _WIRE_NAMES.get(field.name, field.name) for field in dataclasses.fields(value_type)}  # type: ignore[arg-type]
    table = [(name, wire, *conversions.get(name, (_same, _same))) for name, wire in wire_names.items() if wire in in_message]
    has_version = "version" in in_message
    assert {wire for _, wire, _, _ in table} | ({"version"} if has_version else set()) == set(in_message)
    is_ledger_request = "master_key" in in_message
    optional = {name for name, field in in_message.items() if field.has_presence and field.message_type is None}

    def given(message: Any, wire: str) -> Any:
        return getattr(message, wire) if wire not in optional or message.HasField(wire) else None

    def encode(value: _Value) -> _Message:
        version = {"version": version_of(getattr(value, "master_key", NO_KEY))} if has_version else {}
        return message_type(**version, **{wire: write(getattr(value, name)) for name, wire, write, _ in table})

    def decode(message: Any) -> _Value:
        if has_version:
            _check_version(what, message.version)
        if is_ledger_request:
            _check_text_and_key(message.bookie_id, message.master_key)
        check(what, message)
        if is_ledger_request and message.ledger_id < 0:
            raise CorruptionError(what, f"the ledger id {message.ledger_id}")
        for name, problem in (entry_ids or {}).items():
            _check_entry_id(what, getattr(message, name), NO_ENTRY, MAX_ENTRY_ID, problem)
        return value_type(**{name: read(given(message, wire)) for name, wire, _, read in table})

    return encode, decode


def _check_read(what: str, message: pb.ReadRequest) -> None:
    first, last = message.first_entry_id, message.last_entry_id
    if message.ledger_id < 0 or not 0 <= first <= last <= MAX_ENTRY_ID or message.maximum_bytes == 0:
        raise CorruptionError(what, f"it asks for entries {first} to {last} of ledger {message.ledger_id}")


encode_read_request, decode_read_request = _codec("a read request", messages.ReadRequest, pb.ReadRequest, check=_check_read)
encode_last_add_confirmed_request, decode_last_add_confirmed_request = _codec(
    "a read of the last add confirmed",
    messages.LastAddConfirmedRequest,
    pb.ReadLastAddConfirmedRequest,
    entry_ids={"beyond": "it waits beyond entry"},
)
encode_last_add_confirmed_reply, decode_last_add_confirmed_reply = _codec(
    "an answer with the last add confirmed",
    messages.LastAddConfirmedReply,
    pb.ReadLastAddConfirmedReply,
    entry_ids={"last_add_confirmed": "it names entry"},
)
encode_store_last_add_confirmed_request, decode_store_last_add_confirmed_request = _codec(
    "a last add confirmed to store",
    messages.StoreLastAddConfirmedRequest,
    pb.StoreLastAddConfirmedRequest,
    entry_ids={"last_add_confirmed": "it is"},
)
encode_store_last_add_confirmed_reply, decode_store_last_add_confirmed_reply = _codec(
    "an answer to a last add confirmed", messages.PlainReply, pb.StoreLastAddConfirmedReply
)
encode_force_request, decode_force_request = _codec("a force request", messages.ForceRequest, pb.ForceRequest)
encode_force_reply, decode_force_reply = _codec("an answer to a force", messages.PlainReply, pb.ForceReply)
_encode_directory, _decode_directory = _codec(
    "a bookie's directory",
    messages.BookieDirectory,
    pb.Directory,
    conversions={name: (lambda text: text[:MAX_TEXT], printable) for name in ("path", "uses", "file_system")},
)
encode_description, decode_description = _codec(
    "a bookie's description",
    messages.BookieDescription,
    pb.DescribeReply,
    conversions={
        **_CONVERSIONS,
        "bookie_id": (_same, printable),
        "directories": (
            lambda directories: [_encode_directory(one) for one in directories[: messages.MAX_DIRECTORIES]],
            lambda directories: tuple(_decode_directory(one) for one in directories[: messages.MAX_DIRECTORIES]),
        ),
    },
)
encode_administer_reply, decode_administer_reply = _codec(
    "an answer to an operation", messages.AdministerReply, pb.AdministerReply
)


def encode_describe_request(bookie_id: str) -> pb.DescribeRequest:
    return pb.DescribeRequest(version=OPEN_VERSION, bookie_id=bookie_id)


def decode_describe_request(message: pb.DescribeRequest) -> str:
    """The id of the bookie that is meant; empty for whichever bookie answers."""
    _check_version("a describe request", message.version)
    return message.bookie_id[:MAX_TEXT]


def encode_administer_request(
    bookie_id: str, operation: messages.AdminOperation, ledger_ids: Iterable[int] = ()
) -> pb.AdministerRequest:
    return pb.AdministerRequest(version=OPEN_VERSION, bookie_id=bookie_id, operation=operation.value, ledger_ids=ledger_ids)


def decode_administer_request(message: pb.AdministerRequest) -> tuple[str, messages.AdminOperation, tuple[int, ...]]:
    """The id of the bookie that is meant, the operation, and the ledgers that it concerns."""
    _check_version("an operation", message.version)
    if len(message.ledger_ids) > MAX_NAMED_LEDGERS:
        raise CorruptionError("an operation", f"it names {len(message.ledger_ids)} ledgers, {MAX_NAMED_LEDGERS} are allowed")
    try:
        return message.bookie_id[:MAX_TEXT], messages.AdminOperation(message.operation), tuple(message.ledger_ids)
    except ValueError:
        raise CorruptionError("an operation", f"this bookie knows none with the number {message.operation}") from None
