"""Data of a seed: payloads of entries, and tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

WORDS = 4096
"""Different words of the text: as many as make it compress about as log lines do."""


def incompressible(count: int, size_bytes: int, seed: int) -> pa.BinaryArray:
    """So many payloads of random bytes."""
    return _payloads(np.random.default_rng(seed).bytes(count * size_bytes), count, size_bytes)


def text_like(count: int, size_bytes: int, seed: int) -> pa.BinaryArray:
    """So many payloads of words, some far more frequent than others, and numbers."""
    generator = np.random.default_rng(seed)
    words = [bytes(generator.integers(97, 123, size, dtype=np.uint8)) for size in generator.integers(3, 11, WORDS)]
    total, text = count * size_bytes, bytearray()
    while len(text) < total:
        chosen = generator.zipf(1.2, 4096) % WORDS
        numbers = generator.integers(0, 100_000, 4096)
        text += b" ".join(words[word] if word % 5 else b"%d" % number for word, number in zip(chosen, numbers, strict=True))
    return _payloads(bytes(text[:total]), count, size_bytes)


def _payloads(data: bytes, count: int, size_bytes: int) -> pa.BinaryArray:
    offsets = pa.py_buffer(np.arange(0, count * size_bytes + 1, size_bytes, dtype=np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)])


def numeric_table(rows: int, seed: int) -> pa.Table:
    """Measurements, 32 bytes a row: a running id, a time, a sensor, and two values that drift."""
    generator = np.random.default_rng(seed)
    started_us = 1_700_000_000_000_000
    return pa.table(
        {
            "id": pa.array(np.arange(rows, dtype=np.int64)),
            "time_us": pa.array(started_us + np.cumsum(generator.integers(1, 2_000, rows, dtype=np.int64))),
            "sensor": pa.array(generator.integers(0, 1_000, rows, dtype=np.int32)),
            "level": pa.array(generator.normal(20, 5, rows).astype(np.float32)),
            "total": pa.array(np.round(np.cumsum(generator.random(rows)), 3)),
        }
    )


def nested_table(rows: int, seed: int) -> pa.Table:
    """Events: a name, a struct, a list and a map in each row, about 100 bytes."""
    generator = np.random.default_rng(seed)
    tags = [f"tag-{number}" for number in range(50)]
    keys = ["host", "zone", "version"]
    lengths = generator.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    position = [pa.array(generator.uniform(-90, 90, rows)), pa.array(generator.uniform(-180, 180, rows))]
    items = pa.array([f"{keys[0]}-{number}" for number in generator.integers(0, 500, rows * len(keys))])
    map_offsets = pa.array(np.arange(0, rows * len(keys) + 1, len(keys), dtype=np.int32))
    return pa.table(
        {
            "id": pa.array(np.arange(rows, dtype=np.int64)),
            "name": pa.array([f"event-{number}" for number in generator.integers(0, 10_000, rows)]),
            "position": pa.StructArray.from_arrays(position, names=["latitude", "longitude"]),
            "tags": pa.ListArray.from_arrays(offsets, pa.array([tags[n] for n in generator.integers(0, 50, offsets[-1])])),
            "labels": pa.MapArray.from_arrays(map_offsets, pa.array(keys * rows), items),
        }
    )
