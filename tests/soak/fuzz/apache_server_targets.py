"""What a bookie's port for Apache's clients is sent: frames of both versions and of this package's clients, and what is made of
the entries in them, up to the bookie's disk and back to a reader."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from bk_spark.bookie.log_files import record
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES
from bk_spark.config import DigestType
from bk_spark.entries.apache_entries import apache_entries, encode_apache, encode_stretches, own_batches
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.recut import coalesce_whole, cut
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire import frames
from bk_spark.wire.apache import digest_md5, version_2_server, version_3_server
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, AddReply, AddRequest, Status
from tests.sasl_client import response
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_bytes, spoil_message

LEDGER = 7
PROOF = bytes(20)
BOOKIE_ID = "bookie-1"
SALT = 12345


def _entry(entry_id: int, payload: bytes = b"payload", confirmed: int | None = None) -> bytes:
    confirmed = entry_id - 1 if confirmed is None else confirmed
    return struct.pack(">4q", LEDGER, entry_id, confirmed, 7) + bytes(4) + payload


# --- version 2


def _frames_2() -> list[bytes]:
    adds = [struct.pack(">BBH", 2, 1, 0) + PROOF + _entry(one) for one in range(20)]
    odd = [struct.pack(">BBH", 2, 1, 2) + PROOF + _entry(one, bytes(one)) for one in range(5)]
    reads = [struct.pack(">BBHqq", 2, 2, 0, LEDGER, one) for one in (-1, 3)]
    reads.append(struct.pack(">BBHqq", 2, 2, 1, LEDGER, -1) + PROOF)
    batch = struct.pack(">BBHqqqiq", 2, 7, 0, LEDGER, 0, 5, 100, 1 << 20)
    fencing = struct.pack(">BBHqqqiq", 2, 7, 1, LEDGER, 0, 5, 100, 1 << 20) + PROOF
    auth = struct.pack(">BBH", 2, 3, 0) + pb.AuthMessage(authPluginName="x", payload=b"y").SerializeToString()
    return [*adds, *odd, *reads, batch, fencing, auth]


def _streams_2() -> Sequence[bytes]:
    framed = [struct.pack(">I", len(one)) + one for one in _frames_2()]
    return [b"".join(framed), b"".join(framed[:20]), b"".join(framed[20:25]), *framed[19:]]


def _take_2(data: bytes) -> None:
    """Takes all frames, makes batches of the adds, and answers everything."""
    view, at = memoryview(data), 0
    while (end := version_2_server.frame_end(view, at, MAX_MESSAGE_BYTES)) is not None:
        request, after = version_2_server.take(view, at, end)
        assert end <= after <= len(data)
        match request:
            case version_2_server.SingleAdds():
                ids = request.whole.entry_ids
                assert (np.diff(ids) > 0).all()
                assert len(request.whole) == len(ids)
                for status in (Status.OK, Status.UNKNOWN, Status.WRONG_BOOKIE):
                    assert len(request.acks(slice(None), status)) == 28 * len(ids)
                sizes = [len(one) for one in request.whole.entries.to_pylist()]
                assert sum(sizes) + 28 * len(sizes) == after - at
                at = after
                _keep(encode_stretches(request.whole))
            case version_2_server.SingleRead():
                version_2_server.pack_read(request, Status.OK, b"entry")
            case version_2_server.EntriesRead():
                entries = version_2_server.sized([pa.array([b"a", b"bc"], pa.binary())])
                version_2_server.pack_entries(request, Status.OK, entries)
        at = after


def _keep(batches: list[EncodedBatch]) -> None:
    """What becomes of whole entries: cut, joined, taken apart for a reader."""
    for batch in batches:
        whole = apache_entries(batch)
        assert (
            whole.entry_ids.tolist()
            == batch.header.pattern.ids(batch.header.first_entry_id, batch.header.last_entry_id).tolist()
        )
        middle = int(whole.entry_ids[len(whole) // 2])
        part = cut(batch, middle, middle)
        assert part is not None
        assert apache_entries(part).entries.to_pylist() == [whole.entries[len(whole) // 2].as_py()]
        for joined in coalesce_whole([batch]):
            assert len(apache_entries(joined)) <= len(whole)


# --- version 3


def _requests_3() -> Sequence[bytes]:
    def header(operation: int) -> pb.Header:
        return pb.Header(version=3, operation=operation, txnId=5)

    add = pb.AddRequest(ledgerId=LEDGER, entryId=3, masterKey=PROOF, body=_entry(3))
    read = pb.ReadRequest(ledgerId=LEDGER, entryId=3, previousLAC=2, timeOut=5)
    explicit = pb.WriteLacRequest(ledgerId=LEDGER, lac=4, masterKey=PROOF, body=struct.pack(">qqI", LEDGER, 4, 7))
    made = [
        pb.Request(header=header(pb.ADD_ENTRY), addRequest=add),
        pb.Request(header=header(pb.READ_ENTRY), readRequest=read),
        pb.Request(header=header(pb.WRITE_LAC), writeLacRequest=explicit),
        pb.Request(header=header(pb.START_TLS), startTLSRequest=pb.StartTls()),
    ]
    return [one.SerializeToString() for one in made]


def _take_3(data: bytes) -> None:
    request = version_3_server.unpack(memoryview(data))
    if request is None:
        raise CorruptionError("a frame", "it is none of version 3")
    header = request.header
    version_3_server.pack(header, Status.BAD_REQUEST)
    if request.HasField("addRequest") and version_3_server.is_addable(request.addRequest):
        runs = version_3_server.AddRuns()
        for _ in range(2):
            assert runs.follows(request.addRequest) == (len(runs) == 0)
            if not runs:
                runs.take(header.txnId, request.addRequest)
        run = runs.run()
        assert not runs
        assert run.whole.entries.to_pylist() == [request.addRequest.body]
        run.acks(slice(None), Status.OK)
        _keep(encode_stretches(run.whole))
    if header.operation == pb.READ_ENTRY and request.HasField("readRequest"):
        version_3_server.pack_read(header, request.readRequest, Status.OK, b"entry", 3)
    if request.HasField("writeLacRequest"):
        version_3_server.explicit_last_add_confirmed(request.writeLacRequest)


# --- SASL

_NONCE = "0123456789abcdef0123456789abcdef"
_PASSWORDS = {"bookkeeper-etl": "s3cret", "\u00e9": "\u00fc"}


def _responses() -> Sequence[bytes]:
    return [response(user, password, _NONCE.encode(), authzid=user) for user, password in _PASSWORDS.items()]


def _take_response(data: bytes) -> None:
    """Whoever is taken knows a password: its digest is that of one of the right responses."""
    outcome = digest_md5.verify(data, _NONCE, _PASSWORDS.get)
    if isinstance(outcome, digest_md5.NotProven):
        assert len(outcome.user) <= digest_md5.MAX_USER_CHARACTERS
        raise CorruptionError("a response", outcome.reason)
    assert outcome.user in _PASSWORDS
    assert outcome.answer.startswith(b"rspauth=")


# --- frames of this package's clients


@cache
def _adds() -> list[AddRequest]:
    digester = Digester(DigestType.HMAC, b"secret")
    payloads = pa.array([b"a", b"bc", b"", b"d"], pa.binary())
    sealed = seal(digester, 9, 4, payloads, length_before=8, last_add_confirmed=3)
    found = [encode(sealed, DigestType.HMAC, pattern) for pattern in (DENSE, IdPattern(3, 2, 0), IdPattern(3, 2, 1))]
    return [
        AddRequest(5, BOOKIE_ID, master_key(b"", 77), one, recovery=n == 1) for n, one in enumerate(found) if one is not None
    ]


def _add_frames() -> Sequence[bytes]:
    return [b"".join(frames.pack_add(one, 123)) for one in _adds()]


def _take_add(data: bytes) -> None:
    """With the right checksum, or hardly any would be looked into."""
    if len(data) > 100:
        size = 4 + int.from_bytes(data[:4])
        at = len(b"".join(frames.pack_add(_adds()[0], 1))) - len(_adds()[0].batch.body)
        data = data[: at - 4] + crc32c(data[at:size]).to_bytes(4) + data[at:]
    number, request = frames.unpack_add(memoryview(data), 0, len(data), BOOKIE_ID)
    if isinstance(request, AddReply):
        assert frames.unpack_reply(frames.pack_reply(request, number)[4:]).status is request.status
        raise CorruptionError("an add", request.detail)
    entries = decode(request.batch)
    assert len(entries) == request.batch.header.count
    again, found = frames.unpack_add(memoryview(b"".join(frames.pack_add(request, number))), 0, len(data), BOOKIE_ID)
    assert (again, found) == (number, request)


def _reply_frames() -> Sequence[bytes]:
    made = [AddReply(5, Status.FENCED, "it is fenced", boot=1 << 63), AddReply(6, Status.OK, "", boot=0)]
    return [frames.pack_reply(one, 123)[4:] for one in made]


def _take_reply(data: bytes) -> None:
    reply = frames.unpack_reply(data)
    assert frames.unpack_reply(frames.pack_reply(reply, reply.request_id)[4:]) == reply


# --- whole entries, as they are stored


@cache
def _whole_batches() -> list[EncodedBatch]:
    found = []
    for kind in DigestType:
        digester = Digester(kind, b"")
        payloads = pa.array([b"%d" % one * (one % 5) for one in range(8)], pa.binary())
        for pattern in (DENSE, IdPattern(3, 2, 1)):
            encoded = encode(seal(digester, LEDGER, 2, payloads, length_before=9, last_add_confirmed=1), kind, pattern)
            assert encoded is not None
            found.append(encode_apache(apache_entries(encoded), pattern))
    return found


def _bodies() -> Sequence[bytes]:
    """The number of the batch whose header it goes with, then the body."""
    return [bytes([number]) + one.body for number, one in enumerate(_whole_batches())]


def _spoil_body(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data[:1] + spoil_bytes(data[1:], [one[1:] for one in others], chance)


def _take_body(data: bytes) -> None:
    if not data:
        return
    batches = _whole_batches()
    batch = EncodedBatch(batches[data[0] % len(batches)].header, data[1:], crc32c(data[1:]))
    whole = apache_entries(batch)
    assert len(whole) == batch.header.count
    _keep([batch])
    for kind in DigestType:
        try:
            parts = list(own_batches(batch, kind))
        except CorruptionError:
            continue
        assert sum(part.header.count for part in parts) == batch.header.count
        for part in parts:
            decode(part).matching(Digester(kind, b""))


# --- records with whole entries, as a log holds them


def _records() -> Sequence[bytes]:
    """Each as it stands at offset 4096, with its body."""
    place = record.Place(SALT, FILE_HEADER_BYTES, 4096)
    return [record.pack_batch(place, 3, one, bytes(24)) + one.body for one in _whole_batches()]


def _spoil_record(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The header or the body, whose checksums are mostly right again."""
    size = record.RECORD_HEADER_BYTES
    if chance.random() < 0.5:
        body = spoil_bytes(data[size:], [one[size:] for one in others], chance)
        return data[:size] + body
    head = spoil_bytes(data[: size - 4], [one[: size - 4] for one in others], chance)[: size - 4].ljust(size - 4, b"\0")
    return head + struct.pack("<I", crc32c(head)) + data[size:]


def _take_record(data: bytes) -> None:
    header = record.unpack(data, "a record", SALT, FILE_HEADER_BYTES)
    if header.batch is None:
        return
    body = data[record.RECORD_HEADER_BYTES :]
    whole = apache_entries(EncodedBatch(header.batch, body, crc32c(body)))
    assert len(whole) == header.batch.count
    with contextlib.suppress(CorruptionError):  # the body is another than the header's
        assert record.batch_of(header, body, "a record").header == header.batch


def targets() -> list[Target]:
    return [
        Target("Apache's requests of version 2", _streams_2, _take_2),
        Target("Apache's requests of version 3", _requests_3, _take_3, spoil_message(pb.Request)),
        Target("responses of DIGEST-MD5", _responses, _take_response),
        Target("framed adds", _add_frames, _take_add),
        Target("framed replies", _reply_frames, _take_reply),
        Target("whole entries", _bodies, _take_body, _spoil_body),
        Target("records of whole entries", _records, _take_record, _spoil_record),
    ]
