"""The footer of a file of many ledgers is read once, however many of them are read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bk_spark.files.file_store import FileStore
from bk_spark.log.stored.tier_columns import ENTRY, LEDGER, ROW
from bk_spark.log.stored.tier_records import DataFile
from bk_spark.log.tier import kept_footers
from bk_spark.log.tier.file_rows import TierFile
from bk_spark.log.tier.kept_footers import KeptFooters


class CountingStore(FileStore):
    """Counts the bytes that are read of files."""

    def __init__(self) -> None:
        super().__init__({})
        self.nbytes = 0

    def open_input(self, address: str) -> pa.NativeFile:
        store = self

        class Counted(io.FileIO):
            def read(self, *size: Any) -> bytes:
                found = super().read(*size)
                store.nbytes += len(found)
                return found

        return pa.PythonFile(Counted(address), mode="r")


@pytest.fixture
def file(tmp_path: Path) -> DataFile:
    rows = pa.table({LEDGER: [1, 2], ENTRY: [0, 0], ROW: pa.array([0, 0], pa.int32()), "n": [10, 20]})
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=1)
    return DataFile(str(path), path.stat().st_size, (1, 2))


def test_the_second_reader_of_a_file_reads_no_footer(file: DataFile) -> None:
    store, footers = CountingStore(), KeptFooters()
    TierFile(store, file, footers).close()
    before = store.nbytes
    assert before > 0
    second = TierFile(store, file, footers)
    assert store.nbytes == before
    assert [batch.column("n").to_pylist() for batch in second.batches([1], ["n"])] == [[20]]
    second.close()


def test_a_file_is_another_one_in_another_store(file: DataFile) -> None:
    footers = KeptFooters()
    TierFile(CountingStore(), file, footers).close()
    other = CountingStore()
    TierFile(other, file, footers).close()
    assert other.nbytes > 0


def test_the_footers_used_last_are_kept_within_their_bound(file: DataFile, monkeypatch: pytest.MonkeyPatch) -> None:
    store, footers = FileStore({}), KeptFooters()
    footer = pq.read_metadata(file.path)
    monkeypatch.setattr(kept_footers, "MOST_BYTES", 3 * footer.serialized_size)
    keys = [(store, str(number), 1) for number in range(4)]
    for key in keys[:3]:
        footers.put(key, footer)
    assert footers.get(keys[0]) is footer
    footers.put(keys[3], footer)
    assert [footers.get(key) is not None for key in keys] == [True, False, True, True]
