"""What Spark's tasks do, without Spark: two processes that move the same payloads, or only encode and decode them.

A task's part of a table is a Parquet file (``part_paths``); a process has every second one, as each of Spark's two cores has.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.ledger_runs import Quorums, read_all
from benchmarks.speed.measure import Sample
from benchmarks.speed.processes import Workers
from benchmarks.speed.spark_session import SparkTable, part_paths
from bk_spark import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder, layout

PROCESSES = 2
SPARK_BATCH_ROWS = 10_000
"""Of the record batches that Spark hands over, by default."""

_DEFAULTS = SourceOptions(metadata="", path="any")
_FORMAT = PayloadFormat(
    compression=_DEFAULTS.compression, max_rows=_DEFAULTS.max_rows_per_entry, max_bytes=_DEFAULTS.max_bytes_per_entry
)


class WithoutSpark:
    """Contestants that do one part each of what a job on ``table`` does. Close it, or use it in a ``with`` statement."""

    def __init__(self, directory: Path, metadata_uri: str, table: SparkTable) -> None:
        self._workers = Workers(PROCESSES)
        self._paths = part_paths(directory)
        self._metadata_uri = metadata_uri
        self._table = table

    def write(self, quorums: Quorums) -> Sample:
        """The payloads of each part, encoded before, into a ledger, which is gone afterwards."""
        return self._timed(_writing, self._paths, self._metadata_uri, quorums)

    def read(self, ledger_ids: Sequence[int]) -> Sample:
        """The payloads of these ledgers, as they are."""
        return self._timed(_reading, self._metadata_uri, ledger_ids)

    def encode(self) -> Sample:
        return self._timed(_encoding, self._paths)

    def decode(self) -> Sample:
        return self._timed(_decoding, self._paths)

    def _timed(self, prepare: Callable[..., Callable[[], float]], *arguments: object) -> Sample:
        return Sample(max(self._workers.run(prepare, *arguments)), self._table.rows, self._table.nbytes)

    def close(self) -> None:
        self._workers.close()

    def __enter__(self) -> WithoutSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _writing(number: int, paths: Sequence[Path], metadata_uri: str, quorums: Quorums) -> Callable[[], float]:
    parts = [list(_payloads(path)) for path in paths[number::PROCESSES]]
    client = BookKeeper(metadata_uri)

    def timed() -> float:
        start = time.perf_counter()
        ledger_ids = [_written(client, quorums, payloads) for payloads in parts]
        seconds = time.perf_counter() - start
        for ledger_id in ledger_ids:
            client.delete_ledger(ledger_id)
        client.close()
        return seconds

    return timed


def _written(client: BookKeeper, quorums: Quorums, payloads: Sequence[pa.BinaryArray]) -> int:
    with client.create_ledger(quorums.ensemble_size, quorums.write_quorum, quorums.ack_quorum) as writer:
        for future in [writer.append_batch_async(one) for one in payloads]:
            future.result()
    return writer.ledger_id


def _reading(number: int, metadata_uri: str, ledger_ids: Sequence[int]) -> Callable[[], float]:
    client = BookKeeper(metadata_uri)

    def timed() -> float:
        start = time.perf_counter()
        for ledger_id in ledger_ids[number::PROCESSES]:
            with client.open_ledger(ledger_id) as reader:
                read_all(reader)
        seconds = time.perf_counter() - start
        client.close()
        return seconds

    return timed


def _encoding(number: int, paths: Sequence[Path]) -> Callable[[], float]:
    parts = [_batches(path) for path in paths[number::PROCESSES]]

    def timed() -> float:
        start = time.perf_counter()
        for batches in parts:
            encoder = _encoder(batches[0].schema)
            for batch in batches:
                for _ in encoder.encode(batch):
                    pass
        return time.perf_counter() - start

    return timed


def _decoding(number: int, paths: Sequence[Path]) -> Callable[[], float]:
    parts = [[payload[0].as_buffer() for payload in _payloads(path)] for path in paths[number::PROCESSES]]
    decoder = RowDecoder(_stored(pq.read_schema(paths[0])))

    def timed() -> float:
        start = time.perf_counter()
        for payloads in parts:
            for payload in payloads:
                decoder.decode(payload, "a payload")
        return time.perf_counter() - start

    return timed


def _payloads(path: Path) -> Iterator[pa.BinaryArray]:
    """As the data source appends them: a batch of entries, or an entry that holds rows."""
    batches = _batches(path)
    if batches[0].schema.names == ["payload"]:
        yield from (batch.column(0) for batch in batches)
        return
    encoder = _encoder(batches[0].schema)
    for batch in batches:
        for payload, _ in encoder.encode(batch):
            offsets = pa.py_buffer(struct.pack("<2i", 0, payload.size))
            yield pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, payload])


def _batches(path: Path) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pq.read_table(path).combine_chunks().to_batches(max_chunksize=SPARK_BATCH_ROWS)
    # As they arrive from Spark: each with buffers of its own.
    return [pa.ipc.read_record_batch(batch.serialize(), batch.schema) for batch in found]


def _encoder(schema: pa.Schema) -> RowEncoder:
    return RowEncoder("a log", _stored(schema), _FORMAT)


def _stored(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, layout(field.type)) for field in schema])
