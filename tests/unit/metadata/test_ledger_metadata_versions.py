"""Ledger metadata in the three versions that Apache BookKeeper has written. Situation 87.

The samples are those of Apache's TestLedgerMetadataSerDe.
"""

from __future__ import annotations

import base64
import dataclasses
from contextlib import suppress

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from bk_spark.metadata.ledger_metadata_versions import read
from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat

HEADER = b"BookieMetadataFormatVersion\t"
V1 = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\t192.0.2.1:1234\t192.0.2.2:1234\t192.0.2.3:1234\n-102\tCLOSED"
V2 = (
    HEADER + b"2\n"
    b"quorumSize: 2\nensembleSize: 3\nlength: 0\nlastEntryId: -1\nstate: IN_RECOVERY\n"
    b'segment {\n  ensembleMember: "192.0.2.1:1234"\n  ensembleMember: "192.0.2.2:1234"\n'
    b'  ensembleMember: "192.0.2.3:1234"\n  firstEntryId: 0\n}\n'
    b'digestType: CRC32\npassword: "passwd"\nackQuorumSize: 2\n'
)
V3 = base64.b64decode(
    "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTMKYAgCEAMYACD///////////8BKAEyMgoOMTkyLjAuMi4xOjMxODEKDjE5Mi4wLjIuMjozMTgx"
    "Cg4xOTIuMC4yLjM6MzE4MRAAOANCBmZvb2JhckgBUP///////////wFgAA=="
)
ENSEMBLE = tuple(f"192.0.2.{number}:1234" for number in (1, 2, 3))


def test_version_1_is_read_as_apache_wrote_it() -> None:
    """Text lines, without ack quorum, digest type, password and time of creation."""
    metadata = LedgerMetadata.decode(59, V1)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 2)
    assert metadata.fragments == (Fragment(0, ENSEMBLE),)
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.IN_RECOVERY, None, 0)
    assert (metadata.password, metadata.digest_type, metadata.created_ms) == (b"", DigestType.CRC32C, 0)


@pytest.mark.parametrize(
    ("end", "state", "last"),
    [("", LedgerState.OPEN, None), ("-1\tCLOSED", LedgerState.CLOSED, -1), ("99\tCLOSED", LedgerState.CLOSED, 99)],
)
def test_version_1_says_by_its_last_line_whether_the_ledger_is_closed(end: str, state: LedgerState, last: int | None) -> None:
    text = f"2\n2\n1000\n0\ta:1\tb:1\n50\ta:1\tc:1\n{end}"
    metadata = LedgerMetadata.decode(59, HEADER + b"1\n" + text.encode())
    assert (metadata.state, metadata.last_entry_id) == (state, last)
    assert metadata.fragments == (Fragment(0, ("a:1", "b:1")), Fragment(50, ("a:1", "c:1")))
    assert metadata.length == 1000


def test_version_2_is_read_as_apache_wrote_it() -> None:
    """Protobuf's text format; the time of creation came later."""
    metadata = LedgerMetadata.decode(59, V2.replace(b"CRC32", b"CRC32C"))
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 2)
    assert metadata.fragments == (Fragment(0, ENSEMBLE),)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.IN_RECOVERY, None)
    assert (metadata.password, metadata.digest_type, metadata.created_ms) == (b"passwd", DigestType.CRC32C, 0)
    with_ctime = LedgerMetadata.decode(59, V2.replace(b"CRC32", b"HMAC") + b"ctime: 1544002383075\n")
    assert (with_ctime.digest_type, with_ctime.created_ms) == (DigestType.HMAC, 1544002383075)


def test_version_3_is_read_as_apache_wrote_it() -> None:
    """Apache stores the last entry id -1 with every ledger that is not closed."""
    metadata = LedgerMetadata.decode(59, V3)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 1)
    assert metadata.fragments == (Fragment(0, tuple(f"192.0.2.{number}:3181" for number in (1, 2, 3))),)
    assert (metadata.state, metadata.last_entry_id, metadata.password) == (LedgerState.OPEN, None, b"foobar")


@pytest.mark.parametrize("digest_type", DigestType)
def test_every_digest_type_of_apache_is_read(digest_type: DigestType) -> None:
    assert LedgerMetadata.decode(59, V2.replace(b"CRC32", digest_type.name.encode())).digest_type is digest_type


@pytest.mark.parametrize("value", [V1, V2.replace(b"CRC32", b"CRC32C"), V3])
def test_what_is_read_in_any_version_is_written_in_version_3(value: bytes) -> None:
    metadata = LedgerMetadata.decode(59, value)
    assert metadata.encode().startswith(HEADER + b"3\n")
    assert LedgerMetadata.decode(59, metadata.encode()) == metadata


METADATA = st.builds(
    lambda ids, end, length, digest_type, password: LedgerMetadata(
        59, 2, 2, 2, digest_type, password, tuple(Fragment(first, ("a:1", f"b:{first}")) for first in sorted({0, *ids}))
    ).closed_at(end, length),
    st.sets(st.integers(1, 2**62), max_size=4),
    st.integers(-1, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(DigestType),
    st.binary(max_size=8),
)


@given(METADATA)
def test_all_versions_of_one_ledger_read_alike(metadata: LedgerMetadata) -> None:
    message = read("it", metadata.encode())
    text = HEADER + b"2\n" + text_format.MessageToString(message).encode()
    assert LedgerMetadata.decode(59, text) == metadata
    lines = [f"{f.first_entry_id}\t" + "\t".join(f.ensemble) for f in metadata.fragments]
    ends = ["2", "2", str(metadata.length), *lines, f"{metadata.last_entry_id}\tCLOSED"]
    bare = dataclasses.replace(metadata, password=b"", digest_type=DigestType.CRC32C)
    assert LedgerMetadata.decode(59, HEADER + b"1\n" + "\n".join(ends).encode()) == bare


LINES = st.lists(st.sampled_from(["2", "3", "0", "-1", "x", "", "0\ta\tb", "0\ta\ta", "7\ta\tb", "-102\tCLOSED", "9\tCLOSED"]))


@given(st.integers(0, 4), st.one_of(st.binary(max_size=60), LINES.map(lambda lines: "\n".join(lines).encode())))
def test_junk_of_every_version_is_refused_or_whole(version: int, junk: bytes) -> None:
    with suppress(CorruptionError, FormatVersionError):
        metadata = LedgerMetadata.decode(59, HEADER + b"%d\n" % version + junk)
        assert metadata.fragments[0].first_entry_id == 0


@given(st.sampled_from([V1, V2.replace(b"CRC32", b"CRC32C"), V3]), st.data())
def test_a_garbled_value_is_refused_or_whole(value: bytes, data: st.DataObject) -> None:
    garbled = bytearray(value)
    garbled[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptionError, FormatVersionError, ConfigError):
        assert LedgerMetadata.decode(59, bytes(garbled)).fragments[0].first_entry_id == 0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"junk",
        HEADER,
        HEADER + b"foobar\nblahblah",
        HEADER + b"123456789123456789\nblahblah",
        HEADER + b"0\n",
        HEADER + b"1\n2\n2\n0\n0\ta\tb\n1\tCLOSED\n7\tc\td",
        HEADER + "1\n2\n2\n0\n\u0660\ta\tb".encode(),
        HEADER + b"1\n2\n2\n99999999999999999999\n0\ta\tb",
        HEADER + b"1\n9999999999\n2\n0\n0\ta\tb",
        HEADER + b"1\n2\n2\n0\n\n0\ta\tb",
        HEADER + b"2\nquorumSize: 2",
        V2.replace(b"-1", b"5").replace(b"CRC32", b"CRC32C"),
        V2 + b"unknown: 1",
        V2[:-20],
        V3[:-1],
        V3 + b"\0",
        V3 + b"\x60\0",
        HEADER + b"3\n\0",
    ],
)
def test_what_is_no_metadata_of_any_version_is_damage(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="metadata of ledger 59"):
        LedgerMetadata.decode(59, value)


def test_a_required_field_that_is_missing_is_damage() -> None:
    message = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, state=LedgerMetadataFormat.OPEN)
    with pytest.raises(CorruptionError, match="missing"):
        LedgerMetadata.decode(59, HEADER + b"2\n" + text_format.MessageToString(message).encode())
