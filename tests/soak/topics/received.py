"""What Pulsar's own client received, as it wrote it down (java/Received.java), in the columns of our readers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.pulsar.columns import MESSAGE_ID, MESSAGE_SCHEMA, TIMESTAMP

Numbers = npt.NDArray[np.int64]


def read_columns(directory: Path) -> pa.Table:
    """In MESSAGE_SCHEMA, in the order in which messages came."""
    ids = [pa.array(_numbers(directory, name)) for name in ("ledger_id", "entry_id")]
    ids.append(pa.array(_numbers(directory, "batch_index").astype(np.int32)))
    event_times = _numbers(directory, "event_time")
    columns = {
        "key": _values(directory, "key", pa.string()),
        "value": _values(directory, "value", pa.binary()),
        "_topic": _values(directory, "topic", pa.string()),
        "_message_id": pa.StructArray.from_arrays(ids, fields=list(MESSAGE_ID)),
        "_publish_time": _times(_numbers(directory, "publish_time")),
        "_event_time": _times(event_times, event_times == 0),
        "_producer": _values(directory, "producer", pa.string()),
        "_sequence_id": pa.array(_numbers(directory, "sequence_id")),
        "_properties": _properties(directory),
        "_ordering_key": _values(directory, "ordering_key", pa.binary()),
    }
    return pa.table(columns, schema=MESSAGE_SCHEMA)


def _numbers(directory: Path, name: str) -> Numbers:
    return np.fromfile(directory / name, ">i8").astype(np.int64)


def _times(milliseconds: Numbers, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(milliseconds * 1000, mask=mask).cast(TIMESTAMP)


def _values(directory: Path, name: str, kind: pa.DataType) -> pa.Array:
    if not (directory / f"{name}.sizes").exists():
        return pa.array([], kind)  # no message had one
    sizes = np.fromfile(directory / f"{name}.sizes", ">i4").astype(np.int32)
    valid = np.packbits(sizes >= 0, bitorder="little")
    data = pa.py_buffer((directory / f"{name}.data").read_bytes())
    return pa.Array.from_buffers(kind, len(sizes), [pa.py_buffer(valid), pa.py_buffer(_offsets(np.maximum(sizes, 0))), data])


def _properties(directory: Path) -> pa.Array:
    offsets = _offsets(_numbers(directory, "properties").astype(np.int32))
    names, values = (_values(directory, name, pa.string()) for name in ("property_name", "property_value"))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _offsets(sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
