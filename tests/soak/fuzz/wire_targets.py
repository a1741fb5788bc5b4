"""Every message between clients and bookies, both ways, and the bodies of batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.recut import coalesce, cut
from bk_spark.errors import BookKeeperError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire import codec as codec
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    AdministerReply,
    AdminOperation,
    BookieDescription,
    BookieDirectory,
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
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_bytes, spoil_message

BOOKIE_ID = "bookie-1"
DIRECTORY = BookieDirectory("/data", "data journal-0", "boot:803", 1 << 40, 1 << 41)
KEY = master_key(b"")
DIGESTER = Digester(DigestType.CRC32C, b"")
STRIPE = IdPattern(3, 2, 1)


def batch(ledger_id: int, first: int, count: int, *, pattern: IdPattern = DENSE, digester: Digester = DIGESTER) -> EncodedBatch:
    """Entries of ten bytes each."""
    payloads = pa.array([b"%010d" % one for one in range(first, first + count)], pa.binary())
    sealed = seal(digester, ledger_id, first, payloads, length_before=10 * first, last_add_confirmed=first - 1)
    encoded = encode(sealed, digester.digest_type, pattern)
    assert encoded is not None
    return encoded


@cache
def batches() -> tuple[EncodedBatch, ...]:
    """One of every form: dense, striped, of one entry, of several LACs, with either digest."""
    hmac = Digester(DigestType.HMAC, b"secret")
    joined = coalesce([batch(4, 0, 3), batch(4, 3, 2), batch(4, 5, 1)])
    striped = batch(2, 0, 9, pattern=STRIPE)
    return (batch(1, 0, 5), striped, batch(3, 7, 1), joined, batch(5, 100, 3, digester=hmac))


def requests() -> dict[str, list[Message]]:
    """The seeds of every request, by the name of its method."""
    adds = [AddRequest(n, BOOKIE_ID, KEY, one, recovery=n % 2 == 0) for n, one in enumerate(batches())]
    reads = [ReadRequest(BOOKIE_ID, 1, KEY, 0, 4, DENSE, 1 << 20), ReadRequest(BOOKIE_ID, 2, KEY, 0, 8, STRIPE, 100, True)]
    confirmed = [LastAddConfirmedRequest(BOOKIE_ID, 1, KEY), LastAddConfirmedRequest(BOOKIE_ID, 1, KEY, True, 3, 5)]
    return {
        "Add": [codec.encode_add_request(one) for one in adds],
        "Read": [codec.encode_read_request(one) for one in reads],
        "ReadLastAddConfirmed": [codec.encode_last_add_confirmed_request(one) for one in confirmed],
        "StoreLastAddConfirmed": [
            codec.encode_store_last_add_confirmed_request(StoreLastAddConfirmedRequest(BOOKIE_ID, 1, KEY, 3))
        ],
        "Force": [codec.encode_force_request(ForceRequest(BOOKIE_ID, 1, KEY))],
        "Describe": [codec.encode_describe_request(BOOKIE_ID), codec.encode_describe_request("")],
        "Administer": [codec.encode_administer_request(BOOKIE_ID, AdminOperation.BOOKIE_STATUS)],
    }


def _replies() -> dict[str, list[Message]]:
    figures = {"collected_ledgers": 3, "live_bytes": 1 << 40}
    return {
        "Add": [codec.encode_add_reply(AddReply(7, Status.FENCED, "it is fenced", 9))],
        "Read": [
            *(pb.ReadReply.FromString(codec.encode_read_reply(ReadBatch(one))) for one in batches()),
            pb.ReadReply.FromString(codec.encode_read_reply(ReadEnd(Status.NO_SUCH_ENTRY, 5, "there is none"))),
        ],
        "ReadLastAddConfirmed": [codec.encode_last_add_confirmed_reply(LastAddConfirmedReply(Status.OK, 7, "", True))],
        "StoreLastAddConfirmed": [codec.encode_store_last_add_confirmed_reply(PlainReply(Status.OK, "done"))],
        "Force": [codec.encode_force_reply(PlainReply(Status.OK, "done", 77))],
        "Describe": [codec.encode_description(BookieDescription(Status.OK, BOOKIE_ID, 1 << 40, 1 << 41, "1.0", (DIRECTORY,)))],
        "Administer": [codec.encode_administer_reply(AdministerReply(Status.OK, "it runs", figures))],
    }


_REQUEST_DECODERS: dict[str, Callable[[Any], Any]] = {
    "Add": codec.decode_add_request,
    "Read": codec.decode_read_request,
    "ReadLastAddConfirmed": codec.decode_last_add_confirmed_request,
    "StoreLastAddConfirmed": codec.decode_store_last_add_confirmed_request,
    "Force": codec.decode_force_request,
    "Describe": codec.decode_describe_request,
    "Administer": codec.decode_administer_request,
}
_REQUEST_ENCODERS: dict[str, Callable[[Any], Message]] = {
    "Add": codec.encode_add_request,
    "Read": codec.encode_read_request,
    "ReadLastAddConfirmed": codec.encode_last_add_confirmed_request,
    "StoreLastAddConfirmed": codec.encode_store_last_add_confirmed_request,
    "Force": codec.encode_force_request,
    "Describe": codec.encode_describe_request,
    "Administer": lambda given: codec.encode_administer_request(*given),
}
_REPLY_DECODERS: dict[str, Callable[[Any], Any]] = {
    "Add": codec.decode_add_reply,
    "Read": lambda message: codec.decode_read_reply(message.SerializeToString()),
    "ReadLastAddConfirmed": codec.decode_last_add_confirmed_reply,
    "StoreLastAddConfirmed": codec.decode_store_last_add_confirmed_reply,
    "Force": codec.decode_force_reply,
    "Describe": codec.decode_description,
    "Administer": codec.decode_administer_reply,
}
_REPLY_ENCODERS: dict[str, Callable[[Any], Message]] = {
    "Add": codec.encode_add_reply,
    "Read": lambda given: pb.ReadReply.FromString(codec.encode_read_reply(given)),
    "ReadLastAddConfirmed": codec.encode_last_add_confirmed_reply,
    "StoreLastAddConfirmed": codec.encode_store_last_add_confirmed_reply,
    "Force": codec.encode_force_reply,
    "Describe": codec.encode_description,
    "Administer": codec.encode_administer_reply,
}


def targets() -> list[Target]:
    found = []
    for method, messages in requests().items():
        decoder, encoder = _REQUEST_DECODERS[method], _REQUEST_ENCODERS[method]
        found.append(_codec_target(f"request {method}", messages, decoder, encoder))
    for method, messages in _replies().items():
        found.append(_codec_target(f"reply {method}", messages, _REPLY_DECODERS[method], _REPLY_ENCODERS[method]))
    return [*found, Target("batch body", _bodies, _decode_bodies, _spoil_body)]


def _codec_target(
    name: str, messages: list[Message], decoder: Callable[[Any], Any], encoder: Callable[[Any], Message]
) -> Target:
    kind = type(messages[0])
    seeds = [message.SerializeToString() for message in messages]

    def run(data: bytes) -> None:
        message = kind.FromString(data)
        if isinstance(message, pb.AddRequest | pb.ReadReply):
            message.body_crc32c = crc32c(message.body)
        value = decoder(message)
        again = decoder(kind.FromString(encoder(value).SerializeToString()))
        assert again == value, f"{value} became {again}"
        held = value.batch if isinstance(value, AddRequest | ReadBatch) else None
        if held is not None:
            check_batch(held)

    return Target(name, lambda: seeds, run, spoil_message(kind), (BookKeeperError, DecodeError))


def check_batch(encoded: EncodedBatch) -> None:
    """What bookies and clients do with a batch that came: all of it either works, or says that it is damaged."""
    entries = decode(encoded)
    _check_entries(entries, encoded)
    middle = int(entries.entry_ids[len(entries) // 2])
    part = cut(encoded, middle, middle)
    assert part is not None
    assert len(decode(part)) == 1
    again = encode(entries, encoded.header.digest_type, encoded.header.pattern)
    assert again is not None
    assert decode(again).payloads.equals(entries.payloads)


def _check_entries(entries: EntryBatch, encoded: EncodedBatch) -> None:
    header = encoded.header
    entries.matching(Digester(header.digest_type, b""))
    assert len(entries) == header.count == len(entries.payloads) == len(entries.digests) == len(entries.lengths)
    assert entries.to_arrow().num_rows == header.count
    assert (int(entries.entry_ids[0]), int(entries.entry_ids[-1])) == (header.first_entry_id, header.last_entry_id)


# --- bodies


def _bodies() -> Sequence[bytes]:
    """The number of the batch whose header it goes with, then the body; also some that are compressed or of another schema."""
    good = [bytes([number]) + one.body for number, one in enumerate(batches())]
    return [*good, *(b"\0" + body for body in odd_bodies())]


def odd_bodies() -> list[bytes]:
    """Messages that Arrow reads and that are no body: compressed, with dictionaries, with more columns, with other types."""
    rows = {"digest": pa.array([bytes(4)] * 5, pa.binary(4)), "payload": pa.array([bytes(1000)] * 5, pa.binary())}
    compressed = [pa.ipc.IpcWriteOptions(compression=codec) for codec in ("zstd", "lz4")]
    made = [(pa.record_batch(rows), options) for options in compressed]
    made.append((pa.record_batch({"d": pa.array(["a", "b"]).dictionary_encode()}), pa.ipc.IpcWriteOptions()))
    made.append((pa.record_batch({"n": pa.nulls(5), "l": pa.array([[1]] * 5)}), pa.ipc.IpcWriteOptions()))
    return [_message(*one) for one in made]


def _message(rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    """The messages of a stream, without the schema's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue()[rows.schema.serialize().size :])


def _spoil_body(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Mostly the metadata and the offsets: what is wrong in a payload only its digest shows."""
    head = data[: min(len(data), 400)]
    if chance.random() < 0.8:
        return data[:1] + spoil_bytes(head[1:], [one[1:] for one in others], chance) + data[len(head) :]
    return data[:1] + spoil_bytes(data[1:], others, chance)


def _decode_bodies(data: bytes) -> None:
    if data:
        header = batches()[data[0] % len(batches())].header
        check_batch(EncodedBatch(header, data[1:], crc32c(data[1:])))
