"""Requests about keyed ledgers are refused by bookies of older releases, which could not keep others from reading them."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from bk_spark.entries.digest import master_key
from bk_spark.errors import FormatVersionError
from bk_spark.quorum import DENSE
from bk_spark.wire import codec
from bk_spark.wire.messages import (
    AddReply,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)
from tests.unit.wire.test_frames import packed, request, unpacked

KEYED, OPEN = master_key(b"secret", -77), master_key(b"secret", 77)


def encoded(key: bytes) -> list[tuple[object, object]]:
    """A message of each kind that names a ledger, and what decodes it."""
    about = ("bookie-1", 9, key)
    return [
        (codec.encode_add_request(replace(request(), master_key=key)), codec.decode_add_request),
        (codec.encode_read_request(ReadRequest(*about, 0, 4, DENSE, 100)), codec.decode_read_request),
        (
            codec.encode_last_add_confirmed_request(LastAddConfirmedRequest(*about)),
            codec.decode_last_add_confirmed_request,
        ),
        (
            codec.encode_store_last_add_confirmed_request(StoreLastAddConfirmedRequest(*about, 4)),
            codec.decode_store_last_add_confirmed_request,
        ),
        (codec.encode_force_request(ForceRequest(*about)), codec.decode_force_request),
    ]


@pytest.mark.parametrize("number", range(5))
def test_a_message_about_a_keyed_ledger_has_a_version_that_older_releases_refuse(number: int) -> None:
    message, decode = encoded(OPEN)[number]
    keyed, _ = encoded(KEYED)[number]
    assert (message.version, keyed.version) == (2, 3)  # type: ignore[attr-defined]
    assert decode(keyed).master_key == KEYED  # type: ignore[operator]
    with patch.object(codec, "PROTOCOL_VERSION", 2):
        decode(message)  # type: ignore[operator]
        with pytest.raises(FormatVersionError):
            decode(keyed)  # type: ignore[operator]


def test_a_frame_about_a_keyed_ledger_names_the_bookie_by_another_hash() -> None:
    sent = replace(request(), master_key=KEYED)
    assert unpacked(packed(sent)) == replace(sent, request_id=123)
    assert unpacked(packed(sent), "bookie-2") == AddReply(123, Status.WRONG_BOOKIE, "this is bookie bookie-2")
    place, size = 16, 8  # the hash, behind size, version, operation, flags and number
    keyed, as_open = packed(sent), packed(request())
    assert keyed[place : place + size] != as_open[place : place + size]
