"""Writes a tier's Parquet files, and reads them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bk_spark.config import MIB
from bk_spark.errors import CorruptionError
from bk_spark.lake.digest import LedgerDigest, runs
from bk_spark.lake.plan import merged
from bk_spark.lake.ports import Rewrite
from bk_spark.lake.row_source import RowSource
from bk_spark.log.stored.tier_columns import ENTRY, LEDGER, ROW
from bk_spark.log.stored.tier_records import DataFile, LedgerContent, TierStep
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.file_rows import IN_ORDER, TierFile
from bk_spark.log.tier.file_store import FileStore
from bk_spark.log.tier.row_order import order_of

FILE_BYTES = 256 * MIB
"""Of payloads of several ledgers in one file: engines want 128 to 512 MiB."""

GROUP_BYTES, GROUP_ROWS = 16 * MIB, 1 << 20
"""Of a row group, before compression: what a writer holds in memory, and the least that a reader reads."""


class DataFiles:
    """The files of one log's tier, below ``folder``, which no other log has.

    ``identified`` gives columns the ids that they have in the table.
    """

    def __init__(self, store: FileStore, folder: str, source: RowSource, identified: Callable[[pa.Schema], pa.Schema]) -> None:
        self._store = store
        self._folder = folder
        self._source = source
        self._identified = identified

    def write(
        self, folder: str, step: TierStep, rewrites: Sequence[Rewrite]
    ) -> tuple[dict[int, LedgerContent], tuple[DataFile, ...]]:
        """See ``TierFiles``."""
        content: dict[int, LedgerContent] = {}
        files: list[DataFile] = []
        columns = self._identified(self._source.columns(step.schema_id)) if step.add else None
        for group in groups(step.add):
            if group[0].length > FILE_BYTES:
                content[group[0].ledger_id] = self._copied_alone(folder, group[0], step.schema_id, columns, files)
                continue
            with self._created(folder, columns, [one.ledger_id for one in group], files) as out:
                for ledger in group:
                    content[ledger.ledger_id] = self._copied(ledger, step.schema_id, out)
        for rewrite in rewrites:
            self._rewrite(folder, rewrite, files)
        return content, tuple(files)

    def read_back(self, files: Iterable[DataFile]) -> dict[int, LedgerContent]:
        """See ``TierFiles``."""
        reading, found = _ReadBack(), merged(files)
        for file in found:
            self._read_back(file, reading)
        if reading.unordered:
            for file in found:
                self._gather(file, reading)
        return reading.content()

    def missing(self, files: Iterable[DataFile]) -> list[str]:
        """See ``TierFiles``."""
        return [one.path for one in files if self._store.size(one.path) != one.size]

    def folders(self, step: int) -> list[str]:
        """See ``TierFiles``."""
        return sorted(name for name in self._store.folders(self._folder) if name.startswith(f"{step}-"))

    def delete_folder(self, folder: str) -> None:
        """See ``TierFiles``."""
        self._store.delete_folder(f"{self._folder}/{folder}")

    def _copied(self, ledger: CommittedLedger, schema_id: int | None, out: _FileWriter) -> LedgerContent:
        digest = LedgerDigest()
        for rows in self._source.rows(ledger, schema_id):
            digest.add(_without_ledger(rows))
            out.add(rows)
        return digest.content()

    def _copied_alone(
        self, folder: str, ledger: CommittedLedger, schema_id: int | None, columns: pa.Schema | None, files: list[DataFile]
    ) -> LedgerContent:
        """To files that have rows of nothing else. No entry is in two of them."""
        digest, every = LedgerDigest(), self._source.rows(ledger, schema_id)
        rows = next(every, None)
        while rows is not None:
            with self._created(folder, columns, (ledger.ledger_id,), files) as out:
                while rows is not None and out.written < FILE_BYTES:
                    digest.add(_without_ledger(rows))
                    out.add(rows)
                    rows = next(every, None)
        return digest.content()

    def _rewrite(self, folder: str, rewrite: Rewrite, files: list[DataFile]) -> None:
        """The rows of the ledgers that stay, in their order, with the columns that they have."""
        source = TierFile(self._store, rewrite.file)
        stay = pa.array(rewrite.stay, pa.int64())
        try:
            with self._created(folder, source.schema.remove_metadata(), rewrite.stay, files) as out:
                for batch in source.all_batches():
                    out.add(batch.filter(pc.is_in(batch.column(LEDGER), stay)))
        finally:
            source.close()

    @contextmanager
    def _created(
        self, folder: str, columns: pa.Schema | None, ledgers: Sequence[int], files: list[DataFile]
    ) -> Iterator[_FileWriter]:
        assert columns is not None, "who writes rows knows their columns"
        path = f"{self._folder}/{folder}/{len(files):05}.parquet"
        with self._store.created(path) as sink, _FileWriter(sink, columns) as writer:
            yield writer
        size = self._store.size(path)
        if size is None:
            raise CorruptionError(f"file {path}", "it is gone just after it was written")
        files.append(DataFile(path, size, tuple(ledgers)))

    def _read_back(self, file: DataFile, reading: _ReadBack) -> None:
        opened = TierFile(self._store, file)
        try:
            reading.begin(file)
            for batch in opened.all_batches():
                reading.add(batch)
        finally:
            opened.close()

    def _gather(self, file: DataFile, reading: _ReadBack) -> None:
        opened = TierFile(self._store, file)
        try:
            for batch in opened.all_batches():
                reading.gather(batch)
        finally:
            opened.close()


class _FileWriter:
    """Writes rows to one file, in row groups."""

    def __init__(self, sink: pa.NativeFile, columns: pa.Schema) -> None:
        self._columns = columns
        self._sink = sink
        self._writer = pq.ParquetWriter(
            sink, columns.with_metadata({IN_ORDER: b"log"}), compression="zstd", write_page_index=True
        )
        self._waiting: list[pa.RecordBatch] = []
        self._nbytes = self._rows = 0

    def __enter__(self) -> _FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    @property
    def written(self) -> int:
        """Bytes of the file so far, without the row group that is not full yet."""
        return int(self._sink.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows in the columns of the file, by place."""
        self._waiting.append(pa.RecordBatch.from_arrays(rows.columns, schema=self._columns))
        self._nbytes, self._rows = self._nbytes + rows.nbytes, self._rows + rows.num_rows
        if self._nbytes >= GROUP_BYTES or self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._nbytes, self._rows = [], 0, 0


class _ReadBack:
    """Digests of the ledgers of some files, as their rows come."""

    def __init__(self) -> None:
        self._digests: dict[int, LedgerDigest] = {}
        self._behind: dict[int, tuple[int, int]] = {}
        """The last place of each ledger so far."""
        self._wanted: frozenset[int] = frozenset()
        self.unordered: dict[int, list[pa.RecordBatch]] = {}
        """Ledgers whose rows others put in another order: they are taken together, and sorted."""

    def begin(self, file: DataFile) -> None:
        self._wanted = frozenset(file.ledgers)
        for ledger_id in file.ledgers:
            self._digests.setdefault(ledger_id, LedgerDigest())

    def add(self, batch: pa.RecordBatch) -> None:
        for ledger_id, rows in self._of_ledgers(batch):
            if ledger_id in self.unordered:
                continue
            if rows.column(ENTRY).null_count or rows.column(ROW).null_count:
                raise CorruptionError(
                    f"ledger {ledger_id} in a file of a tier", "it has rows without a place: somebody changed them"
                )
            entries, numbers = rows.column(ENTRY).to_numpy(), rows.column(ROW).to_numpy()
            first, last = (int(entries[0]), int(numbers[0])), (int(entries[-1]), int(numbers[-1]))
            if first <= self._behind.get(ledger_id, (-1, -1)) or not _is_ascending(entries, numbers):
                self.unordered[ledger_id] = []
                continue
            self._behind[ledger_id] = last
            self._digests[ledger_id].add(_without_ledger(rows))

    def gather(self, batch: pa.RecordBatch) -> None:
        """For a second pass."""
        for ledger_id, rows in self._of_ledgers(batch):
            if ledger_id in self.unordered:
                self.unordered[ledger_id].append(rows)

    def content(self) -> dict[int, LedgerContent]:
        for ledger_id, found in self.unordered.items():
            rows = pa.concat_tables((pa.Table.from_batches([one]) for one in found), promote_options="permissive")
            places, digest = order_of(rows), LedgerDigest()
            for batch in (rows if places is None else rows.take(pa.array(places))).to_batches():
                digest.add(_without_ledger(batch))
            self._digests[ledger_id] = digest
        return {ledger_id: digest.content() for ledger_id, digest in self._digests.items()}

    def _of_ledgers(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        ids = batch.column(LEDGER).fill_null(-1).to_numpy()
        for ledger_id, start, stop in runs(ids):
            if ledger_id in self._wanted:
                yield ledger_id, batch.slice(start, stop - start)


def groups(ledgers: Sequence[CommittedLedger]) -> list[list[CommittedLedger]]:
    """The ledgers of each file, in order. One of more than a file's bytes is alone, in one or several."""
    found: list[list[CommittedLedger]] = []
    nbytes = 0
    for one in ledgers:
        if not found or nbytes + one.length > FILE_BYTES:
            found.append([])
            nbytes = 0
        found[-1].append(one)
        nbytes += one.length
    return found


def _is_ascending(entries: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> bool:
    steps = np.diff(entries)
    return bool(np.all((steps > 0) | ((steps == 0) & (np.diff(numbers) > 0))))


def _without_ledger(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.drop_columns([LEDGER])
