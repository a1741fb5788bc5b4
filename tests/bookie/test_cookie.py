"""Which bookie a data directory belongs to, and all that must not start."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bk_spark.bookie.cookie import COOKIE_FILE, Cookie, check_cookie, decode_cookie, encode_cookie, format_bookie
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.checksum import crc32c
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata_store import MemoryStore, MemoryTree
from bk_spark.registration import initialise_cluster, instance_id
from bk_spark.znodes import Znodes

ZNODES = Znodes("/ledgers")
COOKIE = Cookie("h:1-abcdef01", "instance")


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(MemoryTree(clock_ms=lambda: 0))
    initialise_cluster(store, ZNODES)
    return store


def test_a_formatted_directory_has_the_id_that_formatting_gave(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path / "d", store, ZNODES, "h", 1)
    assert re.fullmatch(r"h:1-[0-9a-f]{8}", bookie_id)
    assert check_cookie(tmp_path / "d", store, ZNODES) == bookie_id


def test_a_host_and_port_formatted_anew_is_another_bookie(store: MemoryStore, tmp_path: Path) -> None:
    ids = {format_bookie(tmp_path / str(number), store, ZNODES, "h", 1) for number in range(3)}
    assert len(ids) == 3


def test_an_id_chosen_by_the_user_gets_the_random_suffix_too(store: MemoryStore, tmp_path: Path) -> None:
    assert re.fullmatch(r"rack-1.b-[0-9a-f]{8}", format_bookie(tmp_path, store, ZNODES, "h", 1, id_prefix="rack-1.b"))


@pytest.mark.parametrize("prefix", ["a/b", "a b", "ä", "x" * 201])
def test_an_id_that_apache_would_not_take_is_refused(store: MemoryStore, tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        format_bookie(tmp_path / "d", store, ZNODES, "h", 1, id_prefix=prefix)
    assert not (tmp_path / "d").exists()


def test_the_znode_is_apaches_cookie_text(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    assert store.get(f"/ledgers/cookies/{bookie_id}").value.decode() == (
        f'4\nbookieHost: "{bookie_id}"\njournalDir: "{tmp_path}"\nledgerDirs: "1\\t{tmp_path}"\n'
        f'instanceId: "{instance_id(store, ZNODES)}"\n'
    )


def test_a_formatted_directory_is_not_formatted_again(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    with pytest.raises(ConfigError, match=f"formatted already, for bookie {bookie_id}"):
        format_bookie(tmp_path, store, ZNODES, "h", 2)
    assert check_cookie(tmp_path, store, ZNODES) == bookie_id


def test_a_directory_that_holds_anything_is_not_formatted(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(ConfigError, match="not empty, it holds 'journal'"):
        format_bookie(tmp_path, store, ZNODES, "h", 1)
    assert store.children("/ledgers/cookies") == []


def test_formatting_goes_on_where_a_crash_left_an_unfinished_file(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "cookie.creating").write_bytes(b"half")
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    assert check_cookie(tmp_path, store, ZNODES) == bookie_id


def test_a_directory_in_use_is_not_formatted(store: MemoryStore, tmp_path: Path) -> None:
    lock = REAL_DISK.lock(tmp_path)
    with pytest.raises(ConfigError, match="another process uses it"):
        format_bookie(tmp_path, store, ZNODES, "h", 1)
    lock.release()
    format_bookie(tmp_path, store, ZNODES, "h", 1)


def test_nothing_is_formatted_for_a_root_that_is_not_initialised(tmp_path: Path) -> None:
    empty = MemoryStore(MemoryTree(clock_ms=lambda: 0))
    with pytest.raises(ConfigError, match="bk-spark cluster init"):
        format_bookie(tmp_path / "d", empty, ZNODES, "h", 1)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_that_is_not_formatted_does_not_start(store: MemoryStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="not formatted: 'bk-spark bookie format'"):
        check_cookie(tmp_path / name, store, ZNODES)


def test_a_bookie_whose_cookie_was_removed_does_not_start(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    store.delete(ZNODES.cookie(bookie_id))
    with pytest.raises(ConfigError, match=f"{bookie_id} has no cookie in memory://"):
        check_cookie(tmp_path, store, ZNODES)


def test_a_bookie_of_another_cluster_does_not_start(store: MemoryStore, tmp_path: Path) -> None:
    format_bookie(tmp_path, store, ZNODES, "h", 1)
    mine = instance_id(store, ZNODES)
    store.set(ZNODES.instance_id, b"other", 0)
    with pytest.raises(ConfigError, match=f"cluster with instance id {mine}, and memory:// is other"):
        check_cookie(tmp_path, store, ZNODES)


def test_a_directory_under_another_bookies_cookie_does_not_start(store: MemoryStore, tmp_path: Path) -> None:
    first = format_bookie(tmp_path / "1", store, ZNODES, "h", 1)
    second = format_bookie(tmp_path / "2", store, ZNODES, "h", 2)
    store.set(ZNODES.cookie(first), store.get(ZNODES.cookie(second)).value, 0)
    with pytest.raises(ConfigError, match=f"belongs to bookie {first}.*give each bookie its own directory"):
        check_cookie(tmp_path / "1", store, ZNODES)


def test_a_moved_directory_is_still_its_bookie(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path / "1", store, ZNODES, "h", 1)
    shutil.move(tmp_path / "1", tmp_path / "2")
    assert check_cookie(tmp_path / "2", store, ZNODES) == bookie_id


def test_a_cookie_znode_of_a_newer_format_is_refused_by_number(store: MemoryStore, tmp_path: Path) -> None:
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    newer = store.get(ZNODES.cookie(bookie_id)).value.replace(b"4\n", b"6\n", 1)
    store.set(ZNODES.cookie(bookie_id), newer, 0)
    with pytest.raises(FormatVersionError, match="format version 6"):
        check_cookie(tmp_path, store, ZNODES)


@pytest.mark.parametrize("value", [b"", b"x", b"4\n", b'4\nbookieHost: "a"\n', b"4\n\xff"])
def test_a_damaged_cookie_znode_is_damage(store: MemoryStore, tmp_path: Path, value: bytes) -> None:
    bookie_id = format_bookie(tmp_path, store, ZNODES, "h", 1)
    store.set(ZNODES.cookie(bookie_id), value, 0)
    with pytest.raises(CorruptionError):
        check_cookie(tmp_path, store, ZNODES)


def test_the_cookie_file_is_laid_out_as_documented() -> None:
    body = b"bk_spark cookie\nversion: 1\nbookie_id: h:1-abcdef01\ninstance_id: instance\n"
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


def test_a_directory_with_a_damaged_cookie_does_not_start(store: MemoryStore, tmp_path: Path) -> None:
    format_bookie(tmp_path, store, ZNODES, "h", 1)
    (tmp_path / COOKIE_FILE).write_bytes(b"")
    with pytest.raises(CorruptionError, match=str(tmp_path / COOKIE_FILE)):
        check_cookie(tmp_path, store, ZNODES)
