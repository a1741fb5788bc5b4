"""The last file of a kind, torn at every byte. Ref: docs/rules.md, storage rule 2."""

from __future__ import annotations

from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.bookie.log_files.scan import SECTOR_BYTES
from tests.unit.bookie.log_files.test_replay import LAST_FILES, THREE, LastFile


@LAST_FILES
def test_a_file_that_is_cut_at_any_byte_above_its_durable_length_is_torn(kind, size):
    file = LastFile(kind, size)
    for length in range(file.ends[1], file.ends[2]):
        home = file.start_with(file.data[:length])
        assert (home.ids(), home.damages) == (THREE[:2], [])
        assert file.size == file.ends[1] + RECORD_HEADER_BYTES  # cut and sealed


@LAST_FILES
def test_zeros_from_any_byte_above_the_durable_length_are_a_tear_or_are_reported(kind, size):
    """No acked batch is lost, no unacked one comes back torn; which of the two it is, sectors tell."""
    file = LastFile(kind, size)
    begin, end = file.starts[2], file.ends[2]
    seen = set()
    for place in range(begin, end - 9):
        home = file.start_with(file.data[:place] + bytes(end - place + 7000))
        assert home.ids() == THREE[:2]
        is_reported = bool(home.damages)
        assert not (is_reported and place in (begin, file.ends[1]))
        assert not (is_reported and place % SECTOR_BYTES == 0)
        assert all(one.offset == file.ends[1] for one in home.damages)
        seen.add(is_reported)
    assert seen == {True, False}


@LAST_FILES
def test_a_flipped_bit_at_any_byte_above_the_durable_length_is_reported_as_undecidable(kind, size):
    file = LastFile(kind, size)
    for place in range(file.starts[2], file.ends[2]):
        home = file.start_with(file.flipped(8 * place + place % 8))
        assert home.ids() == THREE[:2]
        assert [(one.offset, one.end, one.is_below_durable) for one in home.damages] == [
            # the second start finds it below the SEAL that the first has set behind it
            (file.ends[1], file.ends[2], True)
        ]
