"""Which compression, and how many rows and bytes an entry: the defaults of those three options.

Four data sets of made-up rows, as Spark hands them over (record batches of 10,000 rows): numbers (a sensor's readings),
text (log lines of few words), nested (an order with items and tags), and random bytes. Each is encoded into row payloads
and decoded again by the package's own codec, on one thread. Measured, in turn:

* by compression, at the default cut: MB/s of encoding and decoding, counted in bytes before compression, and the ratio;
* by the cut, at the default compression: the same for entries of 100 to 100,000 rows and of 64 KiB to 8 MiB;
* what the full validation of decoded rows costs.

What a codec is worth: each byte saved is one that three bookies need not receive, check and sync. `end to end` is the
MB/s of rows where one core encodes them and the bookies take payloads at `--bookies-mb-s`:
1 / (1 / encode + 1 / (ratio * bookies)).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from bk_spark.config import KIB, MIB
from bk_spark.datasource.options import SourceOptions
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder, layout

SPARK_BATCH_ROWS = 10_000
DEFAULTS = SourceOptions(metadata="", path="any")
DataSet: TypeAlias = Callable[[np.random.Generator, int], pa.RecordBatch]


@dataclass(frozen=True)
class Scale:
    """How much of everything to measure."""

    runs: int
    rows: int


FULL = Scale(runs=5, rows=200_000)
SMALL = Scale(runs=2, rows=20_000)


def numeric(draw: np.random.Generator, rows: int) -> pa.RecordBatch:
    at = 1_700_000_000_000_000 + np.cumsum(draw.integers(1, 50_000, rows))
    return pa.record_batch(
        {
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "sensor": pa.array(draw.integers(0, 500, rows), pa.int32()),
            "value": pa.array(np.round(20 + np.cumsum(draw.normal(0, 0.1, rows)), 2)),
            "noise": pa.array(draw.normal(0, 1, rows)),
            "ok": pa.array(draw.random(rows) > 0.01),
        }
    )


def text(draw: np.random.Generator, rows: int) -> pa.RecordBatch:
    words = np.array(
        [
            "INFO",
            "WARN",
            "task",
            "stage",
            "finished",
            "in",
            "ms",
            "on",
            "executor",
            "host",
            "block",
            "stored",
            "memory",
            "free",
            "shuffle",
            "read",
            "partition",
        ]
    )
    lines = [" ".join(words[draw.integers(0, len(words), 10)]) + f" {number}" for number in draw.integers(0, 10**6, rows)]
    return pa.record_batch({"line": pa.array(lines), "level": pa.array(words[draw.integers(0, 2, rows)])})


def nested(draw: np.random.Generator, rows: int) -> pa.RecordBatch:
    items = [
        [{"sku": f"sku-{s % 900}", "count": int(s % 7), "price": s / 100} for s in draw.integers(0, 10**5, 3)]
        for _ in range(rows)
    ]
    tags = [[("channel", "web"), ("campaign", f"c{n}")] for n in draw.integers(0, 40, rows)]
    return pa.record_batch(
        {
            "id": pa.array(np.arange(rows)),
            "items": pa.array(items, pa.list_(pa.field("element", items_type()))),
            "tags": pa.array(tags, pa.map_(pa.string(), pa.string())),
        }
    )


def items_type() -> pa.DataType:
    return pa.struct([("sku", pa.string()), ("count", pa.int32()), ("price", pa.float64())])


def random_bytes(draw: np.random.Generator, rows: int) -> pa.RecordBatch:
    data = draw.bytes(100 * rows)
    return pa.record_batch({"value": pa.array([data[i : i + 100] for i in range(0, len(data), 100)], pa.binary())})


DATA_SETS: dict[str, DataSet] = {"numeric": numeric, "text": text, "nested": nested, "random": random_bytes}


# --- measuring --------------------------------------------------------------------------------


def batches_of(data: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    """Copies, as batches are that arrive one by one."""
    slices = [data.slice(start, rows) for start in range(0, data.num_rows, rows)]
    return [pa.ipc.read_record_batch(piece.serialize(), piece.schema) for piece in slices]


def seconds(runs: int, work: Callable[[], Any]) -> float:
    """Median of CPU seconds: other work on the machine disturbs it less than the clock's."""
    taken = []
    for _ in range(runs):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


@dataclass(frozen=True)
class Result:
    """MB/s of rows, and how much smaller they became."""

    encode_mb_s: float
    decode_mb_s: float
    ratio: float
    payload_kib: float

    def end_to_end(self, bookies_mb_s: float) -> float:
        return 1 / (1 / self.encode_mb_s + 1 / (self.ratio * bookies_mb_s))


def measure(scale: Scale, batches: Sequence[pa.RecordBatch], payload_format: PayloadFormat) -> Result:
    schema = pa.schema([pa.field(field.name, layout(field.type)) for field in batches[0].schema])
    encoder, decoder = RowEncoder("benchmark", schema, payload_format), RowDecoder(schema)

    def encoded() -> list[pa.Buffer]:
        return [payload for batch in batches for payload, _ in encoder.encode(batch)]

    payloads = encoded()
    size, stored = sum(batch.nbytes for batch in batches), sum(payload.size for payload in payloads)
    encode_s = seconds(scale.runs, encoded)
    decode_s = seconds(scale.runs, lambda: [decoder.decode(payload, "it") for payload in payloads])
    return Result(size / encode_s / 1e6, size / decode_s / 1e6, size / stored, stored / len(payloads) / KIB)


# --- reports ----------------------------------------------------------------------------------


def cut_of(compression: str, rows: int, max_bytes: int) -> PayloadFormat:
    return PayloadFormat(compression=compression, max_rows=rows, max_bytes=max_bytes)


def default_cut(compression: str = DEFAULTS.compression) -> PayloadFormat:
    return cut_of(compression, DEFAULTS.max_rows_per_entry, DEFAULTS.max_bytes_per_entry)


def header(first: str) -> str:
    return f"{'data':9} {first:>16} {'encode MB/s':>12} {'decode MB/s':>12} {'ratio':>6} {'KiB/entry':>10} {'end to end':>11}"


def line(name: str, first: str, result: Result, bookies_mb_s: float) -> str:
    numbers = f"{result.encode_mb_s:12.0f} {result.decode_mb_s:12.0f} {result.ratio:6.2f} {result.payload_kib:10.1f}"
    return f"{name:9} {first:>16} {numbers} {result.end_to_end(bookies_mb_s):11.0f}"


def report_compressions(scale: Scale, data: dict[str, pa.RecordBatch], bookies_mb_s: float) -> Iterator[str]:
    yield header("compression")
    for name, rows in data.items():
        batches = batches_of(rows, SPARK_BATCH_ROWS)
        for compression in ("none", "lz4", "zstd"):
            yield line(name, compression, measure(scale, batches, default_cut(compression)), bookies_mb_s)


def report_cuts(scale: Scale, data: dict[str, pa.RecordBatch], bookies_mb_s: float) -> Iterator[str]:
    yield header("rows/entry")
    for name, rows in data.items():
        for count in (100, 1_000, 10_000, 100_000):
            batches = batches_of(rows, min(count, rows.num_rows))
            yield line(name, str(count), measure(scale, batches, cut_of(DEFAULTS.compression, count, 8 * MIB)), bookies_mb_s)
    yield header("bytes/entry")
    for name, rows in data.items():
        for size in (64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB):
            batches = batches_of(rows, rows.num_rows)
            result = measure(scale, batches, cut_of(DEFAULTS.compression, 2**31 - 1, size))
            yield line(name, f"{size // KIB} KiB", result, bookies_mb_s)


def report_validation(scale: Scale, data: dict[str, pa.RecordBatch]) -> Iterator[str]:
    yield f"{'data':9} {'full validation, GB/s':>22}"
    for name, rows in data.items():
        batches = batches_of(rows, SPARK_BATCH_ROWS)
        taken = seconds(scale.runs, lambda: [batch.validate(full=True) for batch in batches])  # noqa: B023
        yield f"{name:9} {sum(b.nbytes for b in batches) / max(taken, 1e-9) / 1e9:22.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="little of everything: shows that this still runs")
    parser.add_argument("--bookies-mb-s", type=float, default=130.0, help="payload that three bookies take, MB/s (default 130)")
    arguments = parser.parse_args()
    scale = SMALL if arguments.small else FULL
    print(f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, pyarrow {pa.__version__}")
    print(f"# load {os.getloadavg()[0]:.2f}, {scale.rows} rows, median CPU time of {scale.runs} runs, seed 7")
    draw = np.random.default_rng(7)
    data = {name: make(draw, scale.rows) for name, make in DATA_SETS.items()}
    for report in (report_compressions, report_cuts):
        print()
        for text_line in report(scale, data, arguments.bookies_mb_s):
            print(text_line, flush=True)
    print()
    for text_line in report_validation(scale, data):
        print(text_line)


if __name__ == "__main__":
    main()
