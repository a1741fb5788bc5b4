"""What stands in the metadata store: ledgers, registrations, cookies, marks, and all values of logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError

from bk_spark.bookie.identity.cookie_file import BootNumber, DirectoryPlace, StoredCookie, decode_stored, encode_stored
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.errors import BookKeeperError
from bk_spark.log.stored.checkpoint import CheckpointState
from bk_spark.log.stored.json_values import encode
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.names import decode_name, encode_name
from bk_spark.log.stored.schema import appended_schema, decode_schema, encode_schema, parse_schema, type_name
from bk_spark.log.stored.values import (
    ApplicationState,
    CommitKind,
    CommittedLedger,
    Content,
    Head,
    JobState,
    LogVersion,
    OpenLedger,
    Page,
    Totals,
    WriterState,
)
from bk_spark.log.stream.cursors import _cursor
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.metadata import registration
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState, new_ledger
from bk_spark.metadata.registration import BookieAddress
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto.ledger_metadata_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from tests.memory_store import MemoryStore, MemoryTree
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_json, spoil_message

ZNODES = Znodes("/ledgers")
UID = "0f0e3a52"
LANES = Lanes(("customer", "day"), ("string", "date"), 8)
LOGGED = (CommittedLedger(7, 11, 100, 12), CommittedLedger(9, -1, 0, 0))


def targets() -> list[Target]:
    return [
        _ledger(),
        _ledger_message(),
        _registration(),
        _stored_cookie(),
        _mark(),
        *_log_values(),
        Target(
            "schema given by Spark",
            lambda: [_SCHEMA.encode()],
            lambda data: _schema(data.decode(errors="surrogateescape")),
            spoil_json,
        ),
    ]


# --- Apache's formats


def _metadata() -> list[LedgerMetadata]:
    options = LedgerOptions(ensemble_size=3, write_quorum=2, ack_quorum=1, digest_type=DigestType.HMAC, password=b"p")
    first = new_ledger(7, options, ("a", "b", "c"), created_ms=5, creator_token=6)
    fragments = (Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "b", "d")))
    closed = LedgerMetadata(
        7, 3, 2, 1, DigestType.CRC32C, b"", fragments, LedgerState.CLOSED, 12, 300, custom_metadata=(("k", b"v"),)
    )
    return [first, closed]


def _check_ledger(data: bytes) -> None:
    found = LedgerMetadata.decode(7, data)
    assert LedgerMetadata.decode(7, found.encode()) == found
    last = 20 if found.last_entry_id is None else found.last_entry_id
    for fragment, start, end in found.fragment_ranges(last):
        assert found.fragment_of(start) == found.fragment_of(end) == fragment


def _ledger() -> Target:
    frame = b"BookieMetadataFormatVersion\t%d\n"
    first = frame % 1 + b"2\n3\n300\n0\ta\tb\tc\n10\ta\tb\td\n12\tCLOSED"
    second = frame % 2 + (
        b"quorumSize: 2\nensembleSize: 3\nlength: 300\nlastEntryId: 12\nstate: CLOSED\n"
        b'segment {\n  ensembleMember: "a"\n  ensembleMember: "b"\n  ensembleMember: "c"\n  firstEntryId: 0\n}\n'
        b'digestType: CRC32C\npassword: "p"\nackQuorumSize: 2\n'
    )
    return Target("ledger metadata", lambda: [first, second, *(one.encode() for one in _metadata())], _check_ledger)


def _ledger_message() -> Target:
    """The same, but what is spoilt is a field; its frame is right."""

    def run(data: bytes) -> None:
        message = LedgerMetadataFormat.FromString(data)
        _check_ledger(_framed(message.SerializePartialToString()))

    seeds = [_unframed(one.encode()) for one in _metadata()]
    return Target(
        "ledger metadata fields", lambda: seeds, run, spoil_message(LedgerMetadataFormat), (BookKeeperError, DecodeError)
    )


def _framed(message: bytes) -> bytes:
    size, digits = len(message), bytearray()
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return b"BookieMetadataFormatVersion\t3\n" + bytes([*digits, size]) + message


def _unframed(value: bytes) -> bytes:
    rest = value.partition(b"\n")[2]
    return rest[2:] if rest[0] & 0x80 else rest[1:]


def _registration() -> Target:
    def run(data: bytes) -> None:
        found = registration._decode("b", "/ledgers/available/b", data)
        if found is not None:
            assert registration._decode("b", "it", registration._encode(found)) == found
            assert 0 < found.port < 65536
            f"{found.host}:{found.port}".encode()

    address = BookieAddress("b", "127.0.0.1", 3181, "/zone/rack")
    return Target("registration", lambda: [registration._encode(address)], run, spoil_message(BookieServiceInfoFormat))


def _stored_cookie() -> Target:
    places = (DirectoryPlace("data", "0" * 16), DirectoryPlace("journal-0", "1" * 16))
    text = '4\nbookieHost: "h:1"\njournalDir: "/d"\nledgerDirs: "1\\t/d"\ninstanceId: "0f0e3a52"\n'
    seed = encode_stored(StoredCookie("h:1", "0f0e3a52", places, BootNumber(7, "abc"), text))

    def run(data: bytes) -> None:
        found = decode_stored(data, "/ledgers/cookies/h:1")
        assert decode_stored(encode_stored(found), "it") == found

    long = seed.replace(b"boot: 7", b"boot: " + b"7" * 5000)
    return Target("cookie in the store", lambda: [seed, long, b"9" * 5000 + seed], run)


def _mark() -> Target:
    store = MemoryStore(MemoryTree(lambda: 0))
    registration.initialise_cluster(store, ZNODES)
    marks = UnderReplication(store, ZNODES)
    marks.mark(7, ["a:1", "b:2"])
    path = ZNODES.under_replicated(7)

    def run(data: bytes) -> None:
        store.set(path, data, store.get(path).version)
        marks.mark_of(7)
        list(marks.marks())

    return Target("under-replication mark", lambda: [b'replica: "a:1"\nreplica: "b:2"\nctime: 5\n', b""], run)


# --- logs


def _log_values() -> list[Target]:
    version = LogVersion(
        version=3,
        time_ms=5,
        kind=CommitKind.APPEND,
        content=Content.ROWS,
        schema_id=0,
        base_version=1,
        application=("query", 4),
        job_id="job",
        pages=1,
        added=Totals(1, 2, 3),
        removed=Totals(),
        total=Totals(2, 12, 100),
        replaced_version=1,
        end_row=12,
        epoch=2,
        opened=9,
        closed=LOGGED,
    )
    head = Head("orders", 3, 5, Content.ROWS, 0, 1, 1, Totals(2, 12, 100), writer=WriterState(2, (OpenLedger(9, 3),)))
    cursor = encode(name="c", offset=StreamPosition(3, 0, 7, 4).to_offset(UID), row=4, named=True)
    schema = encode_schema("it", json.loads(_SCHEMA))
    return [
        _value("log head", head.encode(), Head.decode),
        _value("log version", version.encode(), LogVersion.decode),
        _value("log page", Page(LOGGED, (3, 4)).encode(), Page.decode),
        _value("log head with lanes", replace(head, lanes=LANES).encode(), Head.decode),
        _value("log page with lanes", Page((replace(LOGGED[0], lane=7),), ()).encode(), Page.decode),
        _value("write job", JobState("uid", "uid", 3).encode(), JobState.decode),
        _value("application", ApplicationState("query", 4, 3).encode(), ApplicationState.decode),
        _value("checkpoint", CheckpointState(1000, 2, (OpenLedger(9, 3),)).encode(), CheckpointState.decode),
        Target("log name", lambda: [encode_name(UID)], lambda data: decode_name("it", data).encode(), spoil_json),
        Target("log cursor", lambda: [cursor], lambda data: _cursor("orders", UID, data, 5), spoil_json),
        Target("log schema", lambda: [schema], lambda data: type_name(decode_schema("it", data)), spoil_json),
    ]


def _value(name: str, seed: bytes, decode: Callable[[str, bytes], Any]) -> Target:
    def run(data: bytes) -> None:
        found = decode("it", data)
        assert decode("it", found.encode()) == found
        hash(found)

    return Target(name, lambda: [seed], run, spoil_json)


_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {}},
            {
                "name": "b",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
            {
                "name": "c",
                "type": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    }
)


def _schema(text: str) -> None:
    schema = parse_schema("orders", text)
    assert appended_schema("orders", schema, schema, merge=False) == schema
