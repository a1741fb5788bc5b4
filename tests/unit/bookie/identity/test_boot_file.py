"""The boot file: its form, its damages, and which boot numbers fit."""

from __future__ import annotations

import pytest

from bk_spark.bookie.identity.boot_file import BootPhase, BootRecord, decode_boot, encode_boot
from bk_spark.bookie.identity.checked_text import encode_fields
from bk_spark.bookie.identity.cookie_file import BootNumber
from bk_spark.bookie.index.generation import IndexGeneration
from bk_spark.entries.crc import crc32c
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError

RECORD = BootRecord(BootNumber(7, "aa", 42), BootNumber(8, "bb"), BootPhase.RUNNING, True, IndexGeneration(b"\x01" * 16, 42))


def test_the_boot_file_is_laid_out_as_documented() -> None:
    body = (
        b"bk_spark boot\nversion: 1\nconfirmed: 7 aa 42\npending: 8 bb 0\nphase: running\nskipped_journal: yes\n"
        b"index: 01010101010101010101010101010101 42\n"
    )
    assert encode_boot(RECORD) == body + b"crc32c: %08x\n" % crc32c(body)


def test_a_number_that_was_written_before_there_were_epochs_is_at_epoch_0() -> None:
    pairs = {"confirmed": "7 aa", "phase": "clean", "skipped_journal": "no", "index": f"{'00' * 16} 1"}
    assert decode_boot(encode_fields("bk_spark boot", 1, pairs.items()), "f").confirmed == BootNumber(7, "aa", 0)


@pytest.mark.parametrize("record", [RECORD, BootRecord(BootNumber(0, "never"))])
def test_a_record_comes_back_as_it_was(record: BootRecord) -> None:
    assert decode_boot(encode_boot(record), "f") == record


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = encode_boot(RECORD)
    for position in range(len(data) - 1):  # the last byte is the line's end
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(BookKeeperError):
                decode_boot(bytes(flipped), "f")
        with pytest.raises(CorruptionError):
            decode_boot(data[:position], "f")


def test_a_newer_boot_file_is_refused_by_number() -> None:
    with pytest.raises(FormatVersionError, match="f has format version 2"):
        decode_boot(encode_fields("bk_spark boot", 2, []), "f")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("phase", "dead"),
        ("skipped_journal", "perhaps"),
        ("confirmed", "7"),
        ("confirmed", "7 aa 1 2"),
        ("confirmed", "7 aa x"),
        ("index", "x"),
        ("phase", ""),
    ],
)
def test_a_value_that_means_nothing_is_damage(name: str, value: str) -> None:
    pairs = {"confirmed": "7 aa 0", "phase": "clean", "skipped_journal": "no", "index": "00 1"}
    with pytest.raises(CorruptionError, match=f"f is damaged.*{name}|f is damaged.*boot number"):
        decode_boot(encode_fields("bk_spark boot", 1, {**pairs, name: value}.items()), "f")


def test_the_confirmed_and_the_pending_number_fit_and_no_other() -> None:
    assert RECORD.fits(BootNumber(7, "aa", 42))
    assert not RECORD.fits(BootNumber(7, "aa", 41))
    assert RECORD.fits(BootNumber(8, "bb"))
    assert not RECORD.fits(BootNumber(7, "bb"))
    assert not RECORD.fits(BootNumber(6, "aa"))


def test_a_boot_that_begins_keeps_the_number_that_the_store_has() -> None:
    """The new number may never be stored: then the one before, which was pending only, must still fit."""
    begun = RECORD.begun(BootNumber(8, "bb"), BootNumber(9, "cc"))
    assert (begun.confirmed, begun.pending) == (BootNumber(8, "bb"), BootNumber(9, "cc"))
    assert (begun.phase, begun.skipped_journal, begun.index) == (RECORD.phase, True, RECORD.index)
