"""Rows above the maximum entry, on real bookies: every reader gives each of them once, wherever it begins and ends."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import MIB
from bk_spark.errors import EntryTooLargeError
from bk_spark.rows.codec import MAX_DECODED_BYTES
from tests.cluster.datasource.direct import Direct, micro_batches

pytestmark = pytest.mark.timeout(300)

SIZES = [3, 18 * MIB, 4, 17 * MIB, 5]
ENTRIES = [0, 1, 6, 7, 12]
"""Where the rows begin: the large ones do not shrink, and have parts of 4 MiB."""


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    chance = np.random.default_rng(1)
    return pa.record_batch({"id": pa.array(range(len(SIZES)), pa.int64()), "data": [chance.bytes(size) for size in SIZES]})


def digests(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["id"], hashlib.sha256(row["data"]).hexdigest()) for row in rows]


def test_partitions_cut_anywhere_give_every_row_once_with_its_first_entry(
    direct: Direct, log: str, rows: pa.RecordBatch
) -> None:
    direct.write(log, rows)
    found = direct.read(log, maxBytesPerPartition="1m", includeMetadata=True)
    assert digests(found) == digests(rows.to_pylist())
    assert [row["_entry_id"] for row in found] == ENTRIES
    assert len(direct.reader(log, maxBytesPerPartition="1m").partitions()) == 13
    assert [row["id"] for row in direct.read(log, where="id >= 3", maxBytesPerPartition="5m")] == [3, 4]


def test_streams_give_every_row_once_whatever_their_limits(direct: Direct, log: str, rows: pa.RecordBatch) -> None:
    direct.write(log, rows)
    by_rows = list(micro_batches(direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=1)))
    assert [ids for _, _, ids in by_rows] == [[0], [1], [2], [3], [4]]
    by_bytes = list(micro_batches(direct.stream(log, startingOffsets="earliest", maxBytesPerTrigger="9m")))
    assert [ids for _, _, ids in by_bytes if ids] == [[0, 1], [2, 3], [4]]
    for start, end, ids in by_bytes:
        between = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
        assert direct.column(log, **between) == ids


def test_a_log_s_rows_are_shown_whole(
    direct: Direct, log: str, rows: pa.RecordBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    direct.write(log, rows.slice(0, 3))
    assert main(["log", "read", log, "--metadata", direct.uri]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [0, 1, 2]


def test_a_row_above_the_limit_is_refused_and_nothing_of_the_write_is_seen(
    direct: Direct, log: str, bookkeeper: BookKeeper, rows: pa.RecordBatch
) -> None:
    direct.write(log, rows.slice(0, 1))
    huge = pa.record_batch({"id": pa.array([9], pa.int64()), "data": [bytes(MAX_DECODED_BYTES)]})
    with pytest.raises(EntryTooLargeError, match=f"the maximum is {MAX_DECODED_BYTES - MIB}"):
        direct.write(log, huge)
    assert direct.column(log) == [0]
