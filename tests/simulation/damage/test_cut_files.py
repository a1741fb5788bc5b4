"""Files of a bookie, cut and damaged at many places. Ref: docs/rules.md, storage rule 2."""

from __future__ import annotations

import os

from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.wire.messages import Status
from tests.unit.bookie.test_bookie_damage import KINDS, _write_three


def _cuts(acked, end, size):
    """Every length for a journal; for the long records of an entry log all around the borders and some between."""
    near = {one for border in (acked, end, -(-acked // 4096) * 4096) for one in range(border - 120, border + 120, 5)}
    chosen = range(acked, end) if size == 10 else sorted(near | set(range(acked, end, 907)))
    return [one for one in chosen if acked <= one < end]


@KINDS
def test_a_file_that_is_cut_anywhere_above_its_acked_length_loses_no_acked_entry(new_harness, tmp_path, kind, size):
    harness = new_harness(tmp_path)
    path, acked = _write_three(harness, size)
    whole = path.read_bytes()
    origin = harness.data_dir
    for length in _cuts(acked, len(whole), size):
        harness.data_dir = origin
        target = harness.copy()
        harness.data_dir = target
        os.truncate(target / kind / path.name, length)
        harness.start()
        harness.assert_holds(1, 0, 5, size=size)
        assert harness.read(1, 6, 6)[1].status is Status.NO_SUCH_ENTRY
        assert (target / kind / path.name).stat().st_size == acked + RECORD_HEADER_BYTES  # cut and sealed
        harness.kill()
        if length % 10 == 0:  # a second crash finds the torn file whole
            harness.start()
            harness.assert_holds(1, 0, 5, size=size)
            harness.kill()


def test_a_record_that_is_damaged_in_the_indexed_part_is_damaged_and_never_missing(harness):
    harness.start()
    harness.add(1, 0, 2, size=2000)
    harness.add(1, 3, 5)
    harness.stop()
    for path, first in zip(harness.files("entry_log"), (0, 3), strict=True):
        data = path.read_bytes()
        for place in range(FILE_HEADER_BYTES, len(data) - RECORD_HEADER_BYTES, 101):
            flipped = bytearray(data)
            flipped[place] ^= 16
            path.write_bytes(flipped)
            harness.start()
            assert harness.read(1, first, first)[1].status is Status.DAMAGED
            assert harness.read(1, 3 - first, 3 - first)[1].status is Status.OK
            harness.stop()
        path.write_bytes(data)
