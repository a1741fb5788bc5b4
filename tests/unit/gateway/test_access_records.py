"""What is stored of tokens, grants and changes reads back, or is refused by its name."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.gateway.access_records import (
    AccessChange,
    AccessHead,
    decode_change,
    decode_grant,
    decode_head,
    decode_token,
    encode_change,
    encode_grant,
    encode_head,
    encode_token,
    grant_key,
)
from bk_spark.gateway.access_rules import MOST_AT_ONCE
from bk_spark.gateway.rights import Grant, Right, parse_identity
from bk_spark.gateway.tokens import StoredToken
from bk_spark.metadata.store import MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES

STORED = StoredToken("AAECAwQFBgc", "etl", bytes(range(32)), 1_000, 2_000, "op@host")
GRANT = Grant(parse_identity("certificate:spärk"), "shop.*", Right.APPEND)
CHANGE = AccessChange((STORED,), (STORED,), (GRANT,), (GRANT,), "a1", "op@host", 3_000)

READERS: dict[str, tuple[bytes, Callable[[bytes], object], object]] = {
    "head": (encode_head(AccessHead(7, "a1")), decode_head, AccessHead(7, "a1")),
    "token": (encode_token(STORED), lambda value: decode_token(STORED.token_id, value), STORED),
    "grant": (encode_grant(GRANT), lambda value: decode_grant(grant_key(GRANT), value), GRANT),
    "change": (encode_change(CHANGE), lambda value: decode_change(7, value), CHANGE),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_written_reads_back(kind: str) -> None:
    value, decode, expected = READERS[kind]
    assert decode(value) == expected


def test_values_have_the_form_of_the_page_on_formats() -> None:
    assert encode_head(AccessHead(7, "a1")) == b'{"change":"a1","format":1,"number":7}'
    assert json.loads(encode_token(STORED)) == {
        "format": 1,
        "name": "etl",
        "sha256": bytes(range(32)).hex(),
        "created_ms": 1_000,
        "ends_ms": 2_000,
        "made_by": "op@host",
    }
    assert encode_grant(GRANT).decode() == '{"format":1,"identity":"certificate:spärk","logs":"shop.*","right":"append"}'
    assert grant_key(Grant(parse_identity("token:etl"), "orders", Right.READ)) == "69bafe82e34c3c701c23db6ee583becb"


def test_the_same_grant_has_one_key_and_others_have_others() -> None:
    names = ("token:a", "token:b", "certificate:a")
    grants = [Grant(parse_identity(name), logs, right) for name in names for logs in ("a", "a*", "b") for right in Right]
    assert len({grant_key(grant) for grant in grants}) == len(grants)
    assert grant_key(Grant(parse_identity("token:a"), "a", Right.READ)) == grant_key(grants[0])


@pytest.mark.parametrize("kind", READERS)
def test_a_newer_format_is_refused_by_its_number_and_no_format_is_damage(kind: str) -> None:
    value, decode, _ = READERS[kind]
    record = json.loads(value)
    with pytest.raises(FormatVersionError, match="has format version 2, this bk_spark reads up to version 1"):
        decode(json.dumps({**record, "format": 2, "more": 1}).encode())
    for wrong in (0, True, "1", None):
        with pytest.raises(CorruptionError):
            decode(json.dumps({**record, "format": wrong}).encode())


@pytest.mark.parametrize("kind", READERS)
def test_a_value_that_lacks_anything_or_has_another_type_is_damage(kind: str) -> None:
    value, decode, _ = READERS[kind]
    record = json.loads(value)
    for name in record:
        for wrong in ({key: one for key, one in record.items() if key != name}, {**record, name: [[1]]}, {**record, name: 1.5}):
            with pytest.raises(CorruptionError):
                decode(json.dumps(wrong).encode())
    for junk in (b"", b"[]", b"null", b"\xff", b'{"format":1', b"[" * 100_000):
        with pytest.raises(CorruptionError):
            decode(junk)


@pytest.mark.parametrize("kind", READERS)
def test_drawn_damage_is_damage_or_a_value_that_may_be(kind: str) -> None:
    value, decode, _ = READERS[kind]
    draw = random.Random(kind)
    for _ in range(300):
        damaged = bytearray(value)
        damaged[draw.randrange(len(value))] = draw.randrange(256)
        try:
            decode(bytes(damaged))
        except (CorruptionError, FormatVersionError):
            continue


def test_a_grant_under_another_name_than_its_own_is_damage() -> None:
    """It could be removed by nobody."""
    with pytest.raises(CorruptionError, match="its name does not follow"):
        decode_grant("0" * 32, encode_grant(GRANT))


def test_the_largest_change_has_room_in_a_value_and_its_transaction() -> None:
    longest = "certificate:" + "\U0001f600" * 256
    grants = tuple(Grant(parse_identity(longest), "\uff71" * 197 + f"{n:02}*", Right.APPEND) for n in range(MOST_AT_ONCE))
    change = AccessChange((), (), grants, (), "0" * 16, "x" * 200, 2**62)
    assert len(encode_change(change)) < MAX_VALUE_BYTES
    assert len(encode_change(change)) + sum(len(encode_grant(one)) + 200 for one in grants) < MAX_TRANSACTION_BYTES
