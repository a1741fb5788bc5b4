"""Writes the Parquet files of one task of a tier's attempt, and reads files back. A process of a Spark job may do it.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bk_spark.config import MIB
from bk_spark.errors import CorruptionError
from bk_spark.files.file_store import FileStore
from bk_spark.lake.digest import LedgerDigest, runs
from bk_spark.lake.encodings import Encodings
from bk_spark.lake.partitions import Key, split
from bk_spark.lake.ports import Rewrite
from bk_spark.lake.row_source import RowSource
from bk_spark.log.stored.tier_columns import ENTRY, LEDGER, ROW
from bk_spark.log.stored.tier_records import DataFile, LedgerContent
from bk_spark.log.stored.tier_settings import PartitionField
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.file_rows import IN_ORDER, TierFile
from bk_spark.log.tier.row_order import MOST_SORTED, of_entries, order_of, parts_of

FILE_BYTES = 256 * MIB
"""Of payloads of several ledgers in one file: engines want 128 to 512 MiB."""

GROUP_BYTES, GROUP_ROWS = 4 * MIB, 1 << 20
"""Of a row group, before compression: what a writer holds in memory, and the least that a reader reads. With four times as
much, a day of a year's ten million rows costs four times the bytes, and whole reads are slower."""


MOST_OPEN = 32
"""Files of partitions at a time: each holds a row group in memory, and a part of an upload."""

_ORDERED = {IN_ORDER: b"log"}
"""Metadata of a file."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Ledgers to copy into one file, or one ledger that is larger than a file into several; or a file to write anew."""

    path: str
    """What the paths of its files begin with."""
    columns: pa.Schema | None
    """With the ids that they have in the table."""
    schema_id: int | None
    ledgers: tuple[CommittedLedger, ...] = ()
    rewrite: Rewrite | None = None
    partition: tuple[PartitionField, ...] = ()
    """Each of the files has rows of one partition. Those of a file that is written anew are in one already."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote, durably."""

    content: dict[int, LedgerContent]
    """Of the ledgers that were copied."""
    files: tuple[DataFile, ...]


Told = Callable[[CommittedLedger, Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Sees the rows of a ledger go by, and gives them on."""


def _untold(ledger: CommittedLedger, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(rows)


class FileTasks:
    """Carries out tasks. Each time that a task is carried out, it writes files of other names."""

    def __init__(self, store: FileStore, source: RowSource) -> None:
        self._store = store
        self._source = source

    def write(self, task: WriteTask, told: Told = _untold) -> Written:
        """``told`` sees the rows of each ledger go by. Raises what reading the ledgers, or the store of files, raises."""
        files = _NewFiles(self._store, f"{task.path}-{uuid.uuid4().hex[:8]}")
        if task.rewrite is not None:
            self._rewrite(task.rewrite, files)
            return Written({}, tuple(files.written))
        assert task.columns is not None, "who copies rows knows their columns"
        every = {one.ledger_id: told(one, self._source.rows(one, task.schema_id)) for one in task.ledgers}
        columns = task.columns.with_metadata(_ORDERED)
        if task.partition:
            with PartitionedWriter(files, columns, task.partition) as parts:
                content = {ledger_id: _copied(rows, parts.of_ledger(ledger_id)) for ledger_id, rows in every.items()}
            return Written(content, tuple(files.written))
        if task.ledgers[0].length > FILE_BYTES:
            content = {ledger_id: _copied_alone(ledger_id, rows, columns, files) for ledger_id, rows in every.items()}
        else:
            with files.created(columns, [*every]) as out:
                content = {ledger_id: _copied(rows, out) for ledger_id, rows in every.items()}
        return Written(content, tuple(files.written))

    def read(
        self, files: Sequence[DataFile], told: Callable[[Iterable[DataFile]], Iterable[DataFile]] = iter
    ) -> dict[int, LedgerContent]:
        """The content of each ledger that the files name. ``told`` sees the files go by. Raises CorruptionError."""
        reading = _ReadBack()
        for file in told(files):
            reading.begin(file)
            for batch in self._batches(file):
                reading.add(batch)
        for part in reading.unordered_parts():
            for file in files:
                reading.begin(file)
                for batch in self._batches(file):
                    reading.gather(batch, part)
            reading.sort(part)
        return reading.content()

    def _rewrite(self, rewrite: Rewrite, files: _NewFiles) -> None:
        """The rows of the ledgers that stay, as the file has them: with its columns, and in the log's order only if it is."""
        source = TierFile(self._store, rewrite.file)
        stay = pa.array(rewrite.stay, pa.int64())
        columns = source.schema.with_metadata(_ORDERED if source.is_in_order else None)
        try:
            with files.created(columns, rewrite.stay) as out:
                for batch in source.all_batches():
                    out.add(batch.filter(pc.is_in(batch.column(LEDGER), stay)))
        finally:
            source.close()

    def _batches(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        opened = TierFile(self._store, file)
        try:
            yield from opened.all_batches()
        finally:
            opened.close()


class _NewFiles:
    """The files of one task, whose paths begin with ``path``."""

    def __init__(self, store: FileStore, path: str) -> None:
        self._store = store
        self._path = path
        self._count = 0
        self.written: list[DataFile] = []

    @contextmanager
    def created(self, columns: pa.Schema, ledgers: Iterable[int]) -> Iterator[_FileWriter]:
        """Another file, for rows of these ledgers: of those that are named once it is whole."""
        self._count += 1
        path = f"{self._path}-{self._count - 1:05}.parquet"
        with self._store.created(path) as sink, _FileWriter(sink, columns) as writer:
            yield writer
        size = self._store.size(path)
        if size is None:
            raise CorruptionError(f"file {path}", "it is gone just after it was written")
        self.written.append(DataFile(path, size, tuple(ledgers)))


class _FileWriter:
    """Writes rows to one file, in row groups."""

    def __init__(self, sink: pa.NativeFile, columns: pa.Schema) -> None:
        self._columns = columns
        self._sink = sink
        self._writer: pq.ParquetWriter | None = None
        """From the first rows on, which say how columns are best encoded."""
        self._waiting: list[pa.RecordBatch] = []
        self._nbytes = self._rows = 0

    def __enter__(self) -> _FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
            self._opened(self._columns.empty_table()).close()

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
            rows = pa.Table.from_batches(self._waiting)
            self._opened(rows).write_table(rows, row_group_size=self._rows)
        self._waiting, self._nbytes, self._rows = [], 0, 0

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            encodings = asdict(Encodings.of(rows))
            self._writer = pq.ParquetWriter(self._sink, self._columns, compression="zstd", write_page_index=True, **encodings)
        return self._writer


_Part = dict[int, tuple[int, int]]
"""Ledgers, and the first and last entry of what is sorted of each at a time."""


class _ReadBack:
    """Digests of the ledgers of some files, as their rows come."""

    def __init__(self) -> None:
        self._digests: dict[int, LedgerDigest] = {}
        self._behind: dict[int, tuple[int, int]] = {}
        """The last place of each ledger so far."""
        self._seen: dict[int, tuple[int, int]] = {}
        """The last entry and the bytes of each ledger."""
        self._wanted: frozenset[int] = frozenset()
        self._unordered: dict[int, list[pa.RecordBatch]] = {}
        """Ledgers whose rows others put in another order: they are taken together, and sorted."""

    def begin(self, file: DataFile) -> None:
        """Batches of this file come now: rows of ledgers that it names count."""
        self._wanted = frozenset(file.ledgers)
        for ledger_id in file.ledgers:
            self._digests.setdefault(ledger_id, LedgerDigest())

    def add(self, batch: pa.RecordBatch) -> None:
        for ledger_id, rows in self._of_ledgers(batch):
            if rows.column(ENTRY).null_count or rows.column(ROW).null_count:
                raise CorruptionError(
                    f"ledger {ledger_id} in a file of a tier", "it has rows without a place: somebody changed them"
                )
            entries, numbers = rows.column(ENTRY).to_numpy(), rows.column(ROW).to_numpy()
            first, last = (int(entries[0]), int(numbers[0])), (int(entries[-1]), int(numbers[-1]))
            last_entry, nbytes = self._seen.get(ledger_id, (0, 0))
            self._seen[ledger_id] = max(last_entry, int(entries.max())), nbytes + rows.nbytes
            if ledger_id in self._unordered:
                continue
            if first <= self._behind.get(ledger_id, (-1, -1)) or not _is_ascending(entries, numbers):
                self._unordered[ledger_id], self._digests[ledger_id] = [], LedgerDigest()
                continue
            self._behind[ledger_id] = last
            self._digests[ledger_id].add(_without_ledger(rows))

    def unordered_parts(self) -> Iterator[_Part]:
        """What is to be gathered and sorted by one more pass each, in this order: ledgers, and the entries of them."""
        small: _Part = {}
        left = MOST_SORTED
        for ledger_id in self._unordered:
            last, nbytes = self._seen[ledger_id]
            if nbytes > MOST_SORTED:
                yield from ({ledger_id: entries} for entries in parts_of(0, last, nbytes))
                continue
            if nbytes > left:
                yield small
                small, left = {}, MOST_SORTED
            small[ledger_id] = (0, last)
            left -= nbytes
        if small:
            yield small

    def gather(self, batch: pa.RecordBatch, part: _Part) -> None:
        for ledger_id, rows in self._of_ledgers(batch):
            if ledger_id in part:
                own = of_entries(rows, ledger_id, *part[ledger_id])
                if own.num_rows:
                    self._unordered[ledger_id].append(own)

    def sort(self, part: _Part) -> None:
        for ledger_id in part:
            found, self._unordered[ledger_id] = self._unordered[ledger_id], []
            if not found:
                continue
            rows = pa.concat_tables((pa.Table.from_batches([one]) for one in found), promote_options="permissive")
            places = order_of(rows)
            for batch in (rows if places is None else rows.take(pa.array(places))).to_batches():
                self._digests[ledger_id].add(_without_ledger(batch))

    def content(self) -> dict[int, LedgerContent]:
        return {ledger_id: digest.content() for ledger_id, digest in self._digests.items()}

    def _of_ledgers(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        ids = batch.column(LEDGER).fill_null(-1).to_numpy()
        for ledger_id, start, stop in runs(ids):
            if ledger_id in self._wanted:
                yield ledger_id, batch.slice(start, stop - start)


class PartitionedWriter:
    """Files of one partition each, for rows of any. Of more than MOST_OPEN the one that rests longest is closed."""

    def __init__(self, files: _NewFiles, columns: pa.Schema, partition: Sequence[PartitionField]) -> None:
        self._files = files
        self._columns = columns
        self._partition = partition
        self._open: dict[Key, tuple[_FileWriter, ExitStack, dict[int, None]]] = {}
        self._ledgers: dict[int, None] = {}
        """Those that no file names yet."""

    def __enter__(self) -> PartitionedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._ledgers and not self._open:
            self._opened((None,) * len(self._partition))
        while self._open:
            self._close(next(iter(self._open)), is_whole=kind is None)

    def of_ledger(self, ledger_id: int) -> LedgerSink:
        """Takes the rows of one ledger. It is named by a file also if it has none."""
        self._ledgers[ledger_id] = None
        return LedgerSink(self, ledger_id)

    def add(self, ledger_id: int, rows: pa.RecordBatch) -> None:
        for key, some in split(rows, self._partition):
            writer, _, ledgers = self._opened(key)
            ledgers[ledger_id] = None
            self._ledgers.pop(ledger_id, None)
            writer.add(some)
            if writer.written >= FILE_BYTES:
                self._close(key, is_whole=True)

    def _opened(self, key: Key) -> tuple[_FileWriter, ExitStack, dict[int, None]]:
        found = self._open.pop(key, None)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                self._close(next(iter(self._open)), is_whole=True)
            ledgers, stack = self._ledgers, ExitStack()
            self._ledgers = {}
            found = stack.enter_context(self._files.created(self._columns, ledgers)), stack, ledgers
        self._open[key] = found  # behind all others
        return found

    def _close(self, key: Key, *, is_whole: bool) -> None:
        _, stack, ledgers = self._open.pop(key)
        if self._ledgers:
            ledgers |= self._ledgers
            self._ledgers = {}
        if is_whole:
            stack.close()
            return
        with suppress(Exception):
            stack.close()


@dataclass(frozen=True, slots=True)
class LedgerSink:
    """Rows of one ledger for a ``PartitionedWriter``."""

    out: PartitionedWriter
    ledger_id: int

    def add(self, rows: pa.RecordBatch) -> None:
        self.out.add(self.ledger_id, rows)


def _copied(every: Iterator[pa.RecordBatch], out: _FileWriter | LedgerSink) -> LedgerContent:
    digest = LedgerDigest()
    for rows in every:
        digest.add(_without_ledger(rows))
        out.add(rows)
    return digest.content()


def _copied_alone(ledger_id: int, every: Iterator[pa.RecordBatch], columns: pa.Schema, files: _NewFiles) -> LedgerContent:
    """To files that have rows of nothing else. No entry is in two of them."""
    digest = LedgerDigest()
    rows = next(every, None)
    while rows is not None:
        with files.created(columns, (ledger_id,)) as out:
            while rows is not None and out.written < FILE_BYTES:
                digest.add(_without_ledger(rows))
                out.add(rows)
                rows = next(every, None)
    return digest.content()


def _is_ascending(entries: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> bool:
    steps = np.diff(entries)
    return bool(np.all((steps > 0) | ((steps == 0) & (np.diff(numbers) > 0))))


def _without_ledger(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.drop_columns([LEDGER])
