"""Ledger metadata: encoding, invariants, transitions."""

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import DigestType, LedgerOptions
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState, new_ledger

ENSEMBLE = ("b1", "b2", "b3")


def _open(**changes: object) -> LedgerMetadata:
    options = LedgerOptions(password=b"secret", custom_metadata={"owner": b"me"})
    metadata = new_ledger(42, options, ENSEMBLE, created_ms=123, creator_token=456)
    return dataclasses.replace(metadata, **changes)  # type: ignore[arg-type]


@given(
    last=st.integers(-1, 2**62),
    length=st.integers(0, 2**62),
    digest_type=st.sampled_from(DigestType),
    custom=st.dictionaries(st.text("ab:é", max_size=5), st.binary(max_size=5), max_size=3),
)
def test_what_is_encoded_is_decoded(last: int, length: int, digest_type: DigestType, custom: dict[str, bytes]) -> None:
    metadata = _open(
        fragments=(Fragment(0, ENSEMBLE), Fragment(12, ("b4", "b2", "b3"))),
        digest_type=digest_type,
        custom_metadata=tuple(sorted(custom.items())),
    ).closed_at(last, length)
    assert LedgerMetadata.decode(42, metadata.encode()) == metadata


def test_the_value_is_the_one_of_apache_bookkeeper_version_3() -> None:
    """The header line, then the length as a varint, then LedgerMetadataFormat with its field numbers."""
    value = _open(password=b"", custom_metadata=(), created_ms=0, creator_token=0).encode()
    header, body = value[:30], value[30:]
    assert header == b"BookieMetadataFormatVersion\t3\n"
    assert body[0] == len(body) - 1
    assert body[1:9] == bytes([0x08, 3, 0x10, 3, 0x18, 0, 0x28, 1])


def test_a_newer_version_is_refused_by_name() -> None:
    value = _open().encode().replace(b"\t3\n", b"\t5\n")
    with pytest.raises(FormatVersionError, match=r"ledger 42 has format version 5.*up to version 4"):
        LedgerMetadata.decode(42, value)


@given(st.data())
def test_garbled_values_are_refused_or_whole(data: st.DataObject) -> None:
    value = bytearray(_open().encode())
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptionError, FormatVersionError):
        assert LedgerMetadata.decode(42, bytes(value)).ledger_id == 42


@given(st.binary(max_size=80))
def test_junk_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptionError):
        LedgerMetadata.decode(1, value)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": LedgerState.CLOSED},
        {"last_entry_id": 3},
        {"state": LedgerState.CLOSED, "last_entry_id": -2},
        {"length": -1},
        {"fragments": ()},
        {"fragments": (Fragment(1, ENSEMBLE),)},
        {"fragments": (Fragment(0, ENSEMBLE), Fragment(0, ENSEMBLE))},
        {"fragments": (Fragment(0, ("b1", "b2", "b2")),)},
        {"fragments": (Fragment(0, ("b1", "b2")),)},
    ],
)
def test_metadata_that_breaks_an_invariant_cannot_be_made(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptionError, match="ledger 42"):
        _open(**changes)


def test_ranges_of_fragments_end_where_the_next_one_starts() -> None:
    two = (Fragment(0, ENSEMBLE), Fragment(12, ("b4", "b2", "b3")))
    metadata = _open(fragments=two)
    assert metadata.fragment_ranges(20) == [(two[0], 0, 11), (two[1], 12, 20)]
    assert metadata.fragment_ranges(11) == [(two[0], 0, 11)]
    assert metadata.fragment_of(11) == two[0]
    assert metadata.fragment_of(12) == two[1]


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(_open())
    assert "secret" not in repr(LedgerOptions(password=b"secret"))


def test_options_outside_of_e_qw_qa_are_refused() -> None:
    with pytest.raises(ConfigError, match="writeQuorum"):
        LedgerOptions(ensemble_size=2, write_quorum=3)
