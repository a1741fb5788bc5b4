"""What Apache's bookies answer: frames in whatever pieces, the entries in them, and responses of version 3."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Sequence

import pyarrow as pa

from bk_spark.client.driver.apache.sasl import Credential, Exchange, WrongMessageError
from bk_spark.client.driver.apache.version_2 import Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.entries.entry_bytes import entries_of, framed, last_add_confirmed_of
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2
from tests.soak.fuzz.engine import Target

LEDGER = 7
DIGESTER = Digester(DigestType.CRC32C, b"")


def _answers() -> list[bytes]:
    """Frames without their sizes: batch reads, adds, and failures of each."""
    payloads = pa.array([b"%d" % one * 5 for one in range(4)], pa.binary())
    batch = seal(DIGESTER, LEDGER, 0, payloads, length_before=0, last_add_confirmed=-1)
    entries = framed(batch, DigestType.CRC32C, b"")  # each behind its size, as in a batch read
    return [
        struct.pack(">BBHiqq", 2, 1, 0, 0, LEDGER, 3),
        struct.pack(">BBHiqqq", 2, 7, 0, 0, LEDGER, 0, 1) + entries,
        struct.pack(">BBHiqqq", 2, 7, 0, 1, LEDGER, 0, 2),
    ]


def _streams() -> Sequence[bytes]:
    frames = [struct.pack(">I", len(one)) + one for one in _answers()]
    return [b"".join(frames), *frames, b"".join(frames[:1] * 50)]


def _take_stream(data: bytes) -> None:
    Version2()._take(data)


def _take_entries(data: bytes) -> None:
    answer = version_2.unpack(data)
    if len(answer.places):
        for begin, end in answer.places[:1]:
            last_add_confirmed_of(LEDGER, DIGESTER, answer.data[begin:end])
        entries = entries_of(LEDGER, DigestType.CRC32C, answer.data, answer.places)
        entries.matching(DIGESTER)
        encoded = encode(entries, DigestType.CRC32C)
        assert encoded is not None
        assert encoded.header.count != len(entries) or len(decode(encoded)) == len(entries)


def _responses() -> Sequence[bytes]:
    header = pb.Header(version=3, operation=pb.READ_ENTRY, txnId=5)
    info = pb.BookieInfoResponse(status=0, freeDiskSpace=1, totalDiskCapacity=2)
    messages = [
        pb.Response(header=header, status=0, readResponse=pb.ReadResponse(status=0, ledgerId=7, entryId=3, maxLAC=2)),
        pb.Response(header=header, status=0, getBookieInfoResponse=info),
        pb.Response(header=header, status=402),
    ]
    packed = [message.SerializeToString() for message in messages]
    return [struct.pack(">I", len(one)) + one for one in packed]


def _take_response(data: bytes) -> None:
    Version3()._take(data)


# --- SASL, by pure-sasl

_CREDENTIAL = Credential("bookkeeper-etl", "s3cret")
_CHALLENGE = b'realm="bookkeeper",nonce="n0nce",qop="auth",charset=utf-8,algorithm=md5-sess'


def _messages() -> Sequence[bytes]:
    """What a server says: first, then last."""
    return [_CHALLENGE, b"rspauth=" + b"0" * 32, _CHALLENGE + b",maxbuf=65536"]


def _take_message(data: bytes) -> None:
    """Nobody without the password is taken for one who knows it, as a first or a last message."""
    first, last = Exchange(_CREDENTIAL), Exchange(_CREDENTIAL)
    last.respond(_CHALLENGE)
    try:
        last.check(data)
    except WrongMessageError:
        pass
    else:
        raise AssertionError("it was taken for a proof")
    try:
        assert b"response=" in first.respond(data)
    except WrongMessageError as problem:
        raise CorruptionError("a message of SASL", str(problem)) from None


def _of_sasl() -> list[Target]:
    """None where pure-sasl is missing, which is an extra."""
    has_library = importlib.util.find_spec("puresasl") is not None
    return [Target("challenges of DIGEST-MD5", _messages, _take_message)] if has_library else []


def targets() -> list[Target]:
    return [
        *_of_sasl(),
        Target("Apache's frames", _streams, _take_stream),
        Target("Apache's entries", _answers, _take_entries),
        Target("Apache's responses", _responses, _take_response),
    ]
