"""The two forms of a cookie: every version and every damage is noticed, and Apache's tools can read the znode."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie_file import (
    BootNumber,
    Cookie,
    DirectoryPlace,
    StoredCookie,
    apache_text,
    decode_cookie,
    decode_stored,
    encode_cookie,
    encode_stored,
    root_uses,
)
from bk_spark.config import BookieConfig
from bk_spark.entries.crc import crc32c
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError

PLACES = (DirectoryPlace("data", "d0"), DirectoryPlace("journal-0", "d0"), DirectoryPlace("entry_log-0", "d1"))
COOKIE = Cookie("h:1-abcdef01", "instance", "d0", ("data", "journal-0"), PLACES)
DIRECTORIES = Directories.of(Path("/d"), BookieConfig(ledger_dirs='/a,/b "ü"'))
STORED = StoredCookie(
    "h:1-abcdef01", "instance", PLACES, BootNumber(7, "00ff"), apache_text("h:1-abcdef01", "instance", DIRECTORIES)
)


def test_the_cookie_file_is_laid_out_as_documented() -> None:
    body = (
        b"bk_spark cookie\nversion: 1\nbookie_id: h:1-abcdef01\ninstance_id: instance\ndirectory_id: d0\n"
        b"uses: data journal-0\ndirectory: data d0\ndirectory: journal-0 d0\ndirectory: entry_log-0 d1\n"
    )
    assert encode_cookie(COOKIE) == body + b"crc32c: %08x\n" % crc32c(body)
    assert decode_cookie(encode_cookie(COOKIE), "f") == COOKIE


def test_a_newer_cookie_file_is_refused_by_number() -> None:
    body = b"bk_spark cookie\nversion: 2\nsomething: else\n"
    with pytest.raises(FormatVersionError, match="f has format version 2"):
        decode_cookie(body + b"crc32c: %08x\n" % crc32c(body), "f")


def test_every_flipped_bit_and_every_cut_of_the_cookie_file_is_noticed() -> None:
    data = encode_cookie(COOKIE)
    for position in range(len(data) - 1):  # the last byte is the line's end
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(BookKeeperError):
                decode_cookie(bytes(flipped), "f")
        with pytest.raises(CorruptionError):
            decode_cookie(data[:position], "f")


def test_a_file_of_another_kind_is_no_cookie() -> None:
    body = b"bk_spark boot\nversion: 1\n"
    with pytest.raises(CorruptionError, match="does not begin as a cookie file does"):
        decode_cookie(body + b"crc32c: %08x\n" % crc32c(body), "f")


def test_the_znode_comes_back_as_it_was() -> None:
    assert decode_stored(encode_stored(STORED), "z") == STORED


def test_apaches_tools_read_the_znode_as_their_cookie() -> None:
    """protobuf's text format, with Apache's message, takes our lines for comments."""
    version, _, text = encode_stored(STORED).decode().partition("\n")
    assert version == "4"
    found = text_format.Parse(text, apaches_message())
    assert (found.bookieHost, found.instanceId) == ("h:1-abcdef01", "instance")
    assert found.journalDir == "/d"
    assert found.ledgerDirs == '2\t/a\t/b "ü"'


def apaches_message():
    file = descriptor_pb2.FileDescriptorProto(name="cookie_format.proto", package="apache")
    message = file.message_type.add(name="CookieFormat")
    for number, name in enumerate(("bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs"), 1):
        message.field.add(name=name, number=number, label=1 if number > 3 else 2, type=9)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("apache.CookieFormat"))()


def test_the_znode_is_laid_out_as_documented() -> None:
    assert encode_stored(STORED).decode() == STORED.apache_text + (
        "# bk_spark version: 1\n# bk_spark boot: 7 00ff 0\n# bk_spark directory: data d0\n"
        "# bk_spark directory: journal-0 d0\n# bk_spark directory: entry_log-0 d1\n"
    )


@pytest.mark.parametrize(("old", "new"), [(b"4\n", b"6\n"), (b"version: 1", b"version: 6")])
def test_a_znode_of_a_newer_format_is_refused_by_number(old: bytes, new: bytes) -> None:
    with pytest.raises(FormatVersionError, match="the cookie z has format version 6"):
        decode_stored(encode_stored(STORED).replace(old, new, 1), "z")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"4\n",
        b'4\nbookieHost: "a"\n',
        b"4\n\xff",
        STORED.apache_text.encode(),
        encode_stored(STORED).replace(b"boot: 7 00ff 0", b"boot: 7"),
        encode_stored(STORED).replace(b"boot: 7 00ff 0", b"boot: x y 0"),
        encode_stored(STORED).replace(b"boot: 7 00ff 0", "boot: \u00b2 00ff 0".encode()),
        encode_stored(STORED).replace(b"directory: data d0", b"directory: data"),
    ],
)
def test_a_damaged_znode_is_damage(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="the cookie z"):
        decode_stored(value, "z")


def test_a_root_has_all_the_uses_that_the_settings_give_it() -> None:
    assert root_uses(Directories.of(Path("/d"), BookieConfig())) == {Path("/d"): ("data", "journal-0", "entry_log-0")}
    found = root_uses(Directories.of(Path("/d"), BookieConfig(journal_dirs="/j,/d", ledger_dirs="/a,/j")))
    assert found == {
        Path("/d"): ("data", "journal-1"),
        Path("/j"): ("journal-0", "entry_log-1"),
        Path("/a"): ("entry_log-0",),
    }
