"""Files that follow each other in a directory. Ref: docs/rules.md, storage rules 2, 5 and 7; docs/formats.md, "File header"."""

from __future__ import annotations

import pytest

from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FILE_VERSION
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, FormatVersionError
from tests.unit.bookie.log_files.log_home import LARGE, SMALL, LogHome

KINDS = pytest.mark.parametrize(("kind", "size"), [("journals", SMALL), ("entry_logs", LARGE)])


@pytest.fixture
def chain(tmp_path):
    """Files of one batch each."""

    def make(kind, size):
        home = LogHome(tmp_path, journal_file_bytes=4500, entry_log_file_bytes=9000).open()
        for first in range(4):
            home.add(1, first, first, size)
        home.kill()
        assert len(home.paths(kind)) == 4
        return home, home.paths(kind)

    return make


@KINDS
def test_a_missing_file_between_two_others_is_damage_and_the_others_are_replayed(chain, kind, size):
    home, paths = chain(kind, size)
    paths[1].unlink()
    home.open()
    assert [one[1] for one in home.ids()] == [0, 2, 3]
    assert [str(one) for one in home.damages] == [f"{paths[1]} is damaged: it is missing, file 3 follows it"]


@KINDS
@pytest.mark.parametrize("lost", [RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + 200])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_file_that_is_not_the_last_is_no_tear_below_the_length_that_its_successor_says(chain, kind, size, lost, zeros):
    """Its SEAL is lost, or a part of its last batch too."""
    home, paths = chain(kind, size)
    data = paths[2].read_bytes()
    paths[2].write_bytes(data[:-lost] + bytes(lost) * zeros)
    home.open()
    assert len(home.ids()) == 4 - (lost > RECORD_HEADER_BYTES)
    assert [(one.path, one.is_below_durable, one.offset < one.end) for one in home.damages] == [(paths[2], True, True)]
    assert paths[2].read_bytes() == data[:-lost] + bytes(lost) * zeros


@KINDS
@pytest.mark.parametrize("place", [40, 48])
def test_a_file_that_is_not_the_last_must_end_as_its_successor_says(chain, kind, size, place):
    """Its sealed length, and its last sequence."""
    home, paths = chain(kind, size)
    _change_header(paths[3], place, lambda byte: byte - 1)
    home.open()
    assert len(home.ids()) == 4
    assert [one.path for one in home.damages] == [paths[2]]
    assert "its successor says" in home.damages[0].problem


@KINDS
def test_a_file_with_a_damaged_header_is_damage_and_the_others_are_replayed(chain, kind, size):
    home, paths = chain(kind, size)
    for number in (1, 3):
        data = bytearray(paths[number].read_bytes())
        data[20] ^= 1
        paths[number].write_bytes(data)
    for _ in range(2):
        home.open()
        assert [one[1] for one in home.ids()] == [0, 2]
        assert [(one.path, one.offset) for one in home.damages] == [(paths[1], 0), (paths[3], 0)]
        home.kill()
    home.open().commit()
    assert home.kill().open().damages == []


@KINDS
def test_the_file_of_the_mark_must_be_there(chain, kind, size):
    home, paths = chain(kind, size)
    home.open().commit()
    home.kill()
    paths[-1].unlink()
    home.open()
    assert [(one.path, one.problem) for one in home.damages] == [(paths[-1], "it is missing")]


def test_the_file_of_the_mark_may_be_gone_if_nothing_referred_to_it(chain):
    """Storage rule 5: a sealed log that is wholly below the mark can be deleted, even the last."""
    home, _ = chain("entry_logs", LARGE)
    home.open().commit()
    home.forget(4)
    home.kill().open()
    assert home.damages == []
    home.add(1, 4, 4, LARGE)
    assert home.kill().open().ids() == [(1, 4, 4)]
    assert home.damages == []


@KINDS
def test_a_file_under_the_name_of_another_is_damage(chain, kind, size):
    home, paths = chain(kind, size)
    paths[1].write_bytes(paths[0].read_bytes())
    home.open()
    assert [one[1] for one in home.ids()] == [0, 2, 3]
    assert [(one.path, one.offset) for one in home.damages] == [(paths[1], 0)]
    assert "it is JOURNAL file 1" in str(home.damages[0]) or kind == "entry_logs"


@KINDS
def test_a_kind_of_file_that_is_not_known_is_damage(chain, kind, size):
    home, paths = chain(kind, size)
    _change_header(paths[1], 12, lambda _: 9)
    home.open()
    assert [(one.path, one.problem) for one in home.damages] == [
        (paths[1], "its header names a kind of file that there is not, 9")
    ]


@KINDS
def test_a_newer_log_file_is_refused_by_name(chain, kind, size):
    home, paths = chain(kind, size)
    _change_header(paths[1], 8, lambda _: FILE_VERSION + 1)
    with pytest.raises(FormatVersionError, match=f"{paths[1].name} has format version {FILE_VERSION + 1}"):
        home.open()


@KINDS
def test_a_log_file_of_an_earlier_version_is_refused_by_name(chain, kind, size):
    home, paths = chain(kind, size)
    _change_header(paths[1], 8, lambda _: FILE_VERSION - 1)
    with pytest.raises(ConfigError, match=f"the format version of .*{paths[1].name} is {FILE_VERSION - 1}: "):
        home.open()


@KINDS
def test_a_log_file_of_another_bookie_is_refused(chain, kind, size):
    home, paths = chain(kind, size)
    _change_header(paths[1], 60, lambda _: ord("x"))
    with pytest.raises(ConfigError, match=paths[1].name):
        home.open()


def _change_header(path, place, change):
    data = bytearray(path.read_bytes())
    data[place] = change(data[place])
    data[FILE_HEADER_BYTES - 4 : FILE_HEADER_BYTES] = crc32c(bytes(data[: FILE_HEADER_BYTES - 4])).to_bytes(4, "little")
    path.write_bytes(data)
