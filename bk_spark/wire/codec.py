"""Messages between clients and bookies in their protobuf form.

Whatever comes from the network is checked here, before anything else sees it: a message that is malformed, above a limit or of
a newer version raises, and never reaches protocol or storage code.

Ref: proto/bookie.proto; docs/formats.md, "The wire".
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from bk_spark.config import DigestType
from bk_spark.entries.batch import MAX_ENTRY_ID, NO_ENTRY, BatchHeader, EncodedBatch
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.body import with_body, without_body
from bk_spark.wire.messages import (
    MASTER_KEY_BYTES,
    MAX_FIGURES,
    MAX_TEXT,
    MAX_WAIT_MS,
    PROTOCOL_VERSION,
    AddReply,
    AddRequest,
    AdministerReply,
    AdminOperation,
    BookieDescription,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

_STATUSES: dict[int, Status] = {status.value: status for status in Status}
_DIGEST_TYPES = {digest_type.value: digest_type for digest_type in DigestType}
_DENSE_NUMBERS = (DENSE.ensemble_size, DENSE.write_quorum, DENSE.slot)

LARGE_BYTES = 16 * 1024
"""Adds from this size on go without protobuf's copies of the body; below it protobuf is as quick."""


def encode_add_request(request: AddRequest, *, with_its_body: bool = True) -> pb.AddRequest:
    return pb.AddRequest(
        version=PROTOCOL_VERSION,
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
    """Serialized, under another number."""
    body, is_large = request.batch.body, len(request.batch.body) >= LARGE_BYTES
    message = encode_add_request(request, with_its_body=not is_large)
    message.request_id = request_id
    packed = bytes(message.SerializeToString())
    return with_body(packed, pb.AddRequest.BODY_FIELD_NUMBER, body) if is_large else packed


def unpack_add_request(data: bytes) -> tuple[pb.AddRequest, memoryview | None]:
    """The message, and its body if that was left out of it. Raises protobuf's DecodeError, CorruptionError."""
    if len(data) < LARGE_BYTES:
        return pb.AddRequest.FromString(data), None
    others, body = without_body(memoryview(data), pb.AddRequest.BODY_FIELD_NUMBER, "an add request")
    return pb.AddRequest.FromString(others), body


def decode_add_request(message: pb.AddRequest, body: bytes | memoryview | None = None) -> AddRequest:
    """``body`` if it was left out of the message.

    Raises FormatVersionError or CorruptionError; the body's checksum and bounds have been verified.
    """
    _check_version("an add request", message.version)
    _check_text_and_key(message.bookie_id, message.master_key)
    batch = EncodedBatch(_decode_header(message.header), message.body if body is None else body, message.body_crc32c)
    batch.check()
    return AddRequest(message.request_id, message.bookie_id, message.master_key, batch, message.recovery, message.deferred_sync)


def encode_add_reply(reply: AddReply) -> pb.AddReply:
    return pb.AddReply(request_id=reply.request_id, status=_wire(reply.status), detail=reply.detail[:MAX_TEXT], boot=reply.boot)


def decode_add_reply(message: pb.AddReply) -> AddReply:
    return AddReply(message.request_id, _status(message.status), _detail(message.detail), message.boot)


def encode_read_request(request: ReadRequest) -> pb.ReadRequest:
    return pb.ReadRequest(
        version=PROTOCOL_VERSION,
        bookie_id=request.bookie_id,
        ledger_id=request.ledger_id,
        master_key=request.master_key,
        first_entry_id=request.first,
        last_entry_id=request.last,
        pattern=_encode_pattern(request.pattern),
        maximum_bytes=request.maximum_bytes,
        fence=request.fence,
    )


def decode_read_request(message: pb.ReadRequest) -> ReadRequest:
    _check_version("a read request", message.version)
    _check_text_and_key(message.bookie_id, message.master_key)
    first, last = message.first_entry_id, message.last_entry_id
    if message.ledger_id < 0 or not 0 <= first <= last <= MAX_ENTRY_ID or message.maximum_bytes == 0:
        raise CorruptionError("a read request", f"it asks for entries {first} to {last} of ledger {message.ledger_id}")
    return ReadRequest(
        message.bookie_id,
        message.ledger_id,
        message.master_key,
        first,
        last,
        _decode_pattern(message.pattern),
        message.maximum_bytes,
        message.fence,
    )


def encode_read_reply(reply: ReadBatch | ReadEnd) -> bytes:
    """Serialized, as ``decode_read_reply`` takes it: protobuf does not see the body (body.py)."""
    if isinstance(reply, ReadEnd):
        end = pb.ReadReply(status=_wire(reply.status), entry_id=reply.next_entry_id, detail=reply.detail[:MAX_TEXT])
        return bytes(end.SerializeToString())
    batch = reply.batch
    others = pb.ReadReply(status=pb.OK, header=_encode_header(batch.header), body_crc32c=batch.body_crc32c)
    return with_body(others.SerializeToString(), pb.ReadReply.BODY_FIELD_NUMBER, batch.body)


def decode_read_reply(data: bytes) -> ReadBatch | ReadEnd:
    """Raises CorruptionError. The batch's body is a part of ``data``."""
    what = "an answer to a read"
    others, body = without_body(memoryview(data), pb.ReadReply.BODY_FIELD_NUMBER, what)
    try:
        message = pb.ReadReply.FromString(others)
    except DecodeError as problem:
        raise CorruptionError(what, f"no message ({problem})") from None
    if not message.HasField("header"):
        # The entry after the last one of all is the end of a read to it.
        _check_entry_id("the end of an answer to a read", message.entry_id, 0, MAX_ENTRY_ID + 1)
        return ReadEnd(_status(message.status), message.entry_id, _detail(message.detail))
    return ReadBatch(EncodedBatch(_decode_header(message.header), body, message.body_crc32c))


def encode_last_add_confirmed_request(request: LastAddConfirmedRequest) -> pb.ReadLastAddConfirmedRequest:
    return pb.ReadLastAddConfirmedRequest(
        version=PROTOCOL_VERSION,
        bookie_id=request.bookie_id,
        ledger_id=request.ledger_id,
        master_key=request.master_key,
        fence=request.fence,
        beyond=request.beyond,
        wait_ms=request.wait_ms,
    )


def decode_last_add_confirmed_request(message: pb.ReadLastAddConfirmedRequest) -> LastAddConfirmedRequest:
    _check_ledger_request("a read of the last add confirmed", message)
    if not NO_ENTRY <= message.beyond <= MAX_ENTRY_ID:
        raise CorruptionError("a read of the last add confirmed", f"it waits beyond entry {message.beyond}")
    return LastAddConfirmedRequest(
        message.bookie_id,
        message.ledger_id,
        message.master_key,
        message.fence,
        message.beyond,
        min(message.wait_ms, MAX_WAIT_MS),
    )


def encode_last_add_confirmed_reply(reply: LastAddConfirmedReply) -> pb.ReadLastAddConfirmedReply:
    return pb.ReadLastAddConfirmedReply(
        status=_wire(reply.status),
        last_add_confirmed=reply.last_add_confirmed,
        detail=reply.detail[:MAX_TEXT],
        fenced=reply.is_fenced,
    )


def decode_last_add_confirmed_reply(message: pb.ReadLastAddConfirmedReply) -> LastAddConfirmedReply:
    confirmed, detail = message.last_add_confirmed, _detail(message.detail)
    _check_entry_id("an answer with the last add confirmed", confirmed, NO_ENTRY, MAX_ENTRY_ID)
    return LastAddConfirmedReply(_status(message.status), confirmed, detail, message.fenced)


def encode_store_last_add_confirmed_request(request: StoreLastAddConfirmedRequest) -> pb.StoreLastAddConfirmedRequest:
    return pb.StoreLastAddConfirmedRequest(
        version=PROTOCOL_VERSION,
        bookie_id=request.bookie_id,
        ledger_id=request.ledger_id,
        master_key=request.master_key,
        last_add_confirmed=request.last_add_confirmed,
    )


def decode_store_last_add_confirmed_request(message: pb.StoreLastAddConfirmedRequest) -> StoreLastAddConfirmedRequest:
    what = "a last add confirmed to store"
    _check_ledger_request(what, message)
    if not NO_ENTRY <= message.last_add_confirmed <= MAX_ENTRY_ID:
        raise CorruptionError(what, f"it is {message.last_add_confirmed}")
    return StoreLastAddConfirmedRequest(message.bookie_id, message.ledger_id, message.master_key, message.last_add_confirmed)


def encode_store_last_add_confirmed_reply(reply: PlainReply) -> pb.StoreLastAddConfirmedReply:
    return pb.StoreLastAddConfirmedReply(status=_wire(reply.status), detail=reply.detail[:MAX_TEXT])


def encode_force_request(request: ForceRequest) -> pb.ForceRequest:
    return pb.ForceRequest(
        version=PROTOCOL_VERSION,
        bookie_id=request.bookie_id,
        ledger_id=request.ledger_id,
        master_key=request.master_key,
    )


def decode_force_request(message: pb.ForceRequest) -> ForceRequest:
    _check_ledger_request("a force request", message)
    return ForceRequest(message.bookie_id, message.ledger_id, message.master_key)


def encode_force_reply(reply: PlainReply) -> pb.ForceReply:
    return pb.ForceReply(status=_wire(reply.status), detail=reply.detail[:MAX_TEXT], boot=reply.boot)


def decode_force_reply(message: pb.ForceReply) -> PlainReply:
    return PlainReply(_status(message.status), _detail(message.detail), message.boot)


def decode_store_last_add_confirmed_reply(message: pb.StoreLastAddConfirmedReply) -> PlainReply:
    return PlainReply(_status(message.status), _detail(message.detail))


def encode_describe_request(bookie_id: str) -> pb.DescribeRequest:
    return pb.DescribeRequest(version=PROTOCOL_VERSION, bookie_id=bookie_id)


def decode_describe_request(message: pb.DescribeRequest) -> str:
    """The bookie id that is meant; empty for whoever answers."""
    _check_version("a describe request", message.version)
    return message.bookie_id[:MAX_TEXT]


def encode_description(description: BookieDescription) -> pb.DescribeReply:
    return pb.DescribeReply(
        status=_wire(description.status),
        bookie_id=description.bookie_id,
        free_bytes=description.free_bytes,
        total_bytes=description.total_bytes,
        program_version=description.program_version,
    )


def decode_description(message: pb.DescribeReply) -> BookieDescription:
    return BookieDescription(
        _status(message.status),
        _detail(message.bookie_id),
        message.free_bytes,
        message.total_bytes,
        _detail(message.program_version),
    )


def encode_administer_request(bookie_id: str, operation: AdminOperation) -> pb.AdministerRequest:
    return pb.AdministerRequest(version=PROTOCOL_VERSION, bookie_id=bookie_id, operation=operation.value)


def decode_administer_request(message: pb.AdministerRequest) -> tuple[str, AdminOperation]:
    """The bookie id that is meant, and what is asked of it."""
    _check_version("an operation", message.version)
    try:
        return message.bookie_id[:MAX_TEXT], AdminOperation(message.operation)
    except ValueError:
        raise CorruptionError("an operation", f"this bookie knows none with the number {message.operation}") from None


def encode_administer_reply(reply: AdministerReply) -> pb.AdministerReply:
    return pb.AdministerReply(status=_wire(reply.status), detail=reply.detail[:MAX_TEXT], figures=reply.figures)


def decode_administer_reply(message: pb.AdministerReply) -> AdministerReply:
    return AdministerReply(_status(message.status), _detail(message.detail), _figures(message))


def _wire(status: Status) -> pb.Status:
    return status.value


def _status(number: int) -> Status:
    """A status of a newer bookie, or none at all, says nothing: it is unknown, never negative."""
    return _STATUSES.get(number, Status.UNKNOWN)


def _encode_pattern(pattern: IdPattern) -> pb.IdPattern:
    return pb.IdPattern(ensemble_size=pattern.ensemble_size, write_quorum=pattern.write_quorum, slot=pattern.slot)


def _decode_pattern(message: pb.IdPattern) -> IdPattern:
    numbers = (message.ensemble_size, message.write_quorum, message.slot)
    if numbers == _DENSE_NUMBERS:
        return DENSE
    try:
        return IdPattern(*numbers)
    except BookKeeperError as problem:
        raise CorruptionError("a message's id pattern", str(problem)) from None


def _encode_header(header: BatchHeader) -> pb.BatchHeader:
    return pb.BatchHeader(
        ledger_id=header.ledger_id,
        first_entry_id=header.first_entry_id,
        last_entry_id=header.last_entry_id,
        pattern=_encode_pattern(header.pattern),
        last_add_confirmed=header.last_add_confirmed,
        length_before=header.length_before,
        digest_type=header.digest_type.value,
        mixed_lac=header.mixed_lac,
    )


def _decode_header(message: pb.BatchHeader) -> BatchHeader:
    digest_type = _DIGEST_TYPES.get(message.digest_type)
    if digest_type is None:
        raise CorruptionError("a batch header", f"unknown digest type {message.digest_type}")
    return BatchHeader(
        message.ledger_id,
        message.first_entry_id,
        message.last_entry_id,
        _decode_pattern(message.pattern),
        message.last_add_confirmed,
        message.length_before,
        digest_type,
        message.mixed_lac,
    )


def _check_entry_id(what: str, entry_id: int, least: int, most: int) -> None:
    if not least <= entry_id <= most:
        raise CorruptionError(what, f"it names entry {entry_id}")


def _figures(message: pb.AdministerReply) -> dict[str, int]:
    if len(message.figures) > MAX_FIGURES:
        raise CorruptionError("an answer to an operation", f"it has {len(message.figures)} figures")
    return {_detail(name): value for name, value in message.figures.items()}


def _detail(text: str) -> str:
    """What another process says of itself, to be shown and logged: short, and no character of it moves a terminal's cursor."""
    cut = text[:MAX_TEXT]
    return cut if cut.isprintable() else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in cut)


def _check_ledger_request(
    what: str, message: pb.ReadLastAddConfirmedRequest | pb.StoreLastAddConfirmedRequest | pb.ForceRequest
) -> None:
    _check_version(what, message.version)
    _check_text_and_key(message.bookie_id, message.master_key)
    if message.ledger_id < 0:
        raise CorruptionError(what, f"the ledger id {message.ledger_id}")


def _check_version(what: str, version: int) -> None:
    if version > PROTOCOL_VERSION:
        raise FormatVersionError(what, version, PROTOCOL_VERSION)
    if version < 1:
        raise CorruptionError(what, f"its version is {version}")


def _check_text_and_key(bookie_id: str, master_key: bytes) -> None:
    if len(bookie_id) > MAX_TEXT:
        raise CorruptionError("a request", f"a bookie id of {len(bookie_id)} characters")
    if len(master_key) != MASTER_KEY_BYTES:
        raise CorruptionError("a request", f"a master key of {len(master_key)} bytes, it has {MASTER_KEY_BYTES}")
