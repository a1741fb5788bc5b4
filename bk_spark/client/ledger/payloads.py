"""What applications append, checked, and in memory that nobody changes any more.

What was handed over is what is stored, so what waits beyond the call lies in memory of our own. Who else may write to memory
cannot be asked: a ``pa.Buffer`` over a numpy array that is read-only says that it is immutable though another view of it can be
written to, and Arrow's own memory, which hardly anybody changes, says that it is mutable. Only two kinds are known to stay: the
``bytes`` of Python, and what was made here. All else is copied, once, and digests and bodies are both made of the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, binaries
from bk_spark.entries.digest import payload_offsets, payloads_in_a_row
from bk_spark.errors import ConfigError, EntryTooLargeError, State

Payload: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

Payloads: TypeAlias = "Sequence[Payload] | pa.BinaryArray | pa.ChunkedArray"

_BYTES = (bytes, bytearray, memoryview, pa.Buffer)


@dataclass(frozen=True)
class CheckedPayloads:
    """At least one payload, none of them null or too large."""

    array: pa.BinaryArray
    """Its offsets are in memory of our own: they were checked, and stay."""
    is_own: bool
    """Whether the bytes are, too."""

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each payload."""
        return np.diff(payload_offsets(self.array)).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """As windows and rolls count them."""
        return int(self.sizes.sum()) + len(self) * ENTRY_OVERHEAD_BYTES

    def part(self, start: int, end: int) -> pa.BinaryArray:
        """The payloads from ``start`` (included) to ``end`` (excluded), in memory of our own."""
        part = self.array.slice(start, end - start)
        return part if self.is_own else _copied(part)

    def owned(self) -> CheckedPayloads:
        """The same payloads, all of them in memory of our own."""
        return self if self.is_own else own_payloads(_copied(self.array))


def own_payloads(array: pa.BinaryArray) -> CheckedPayloads:
    """Payloads that were made here and that nobody else writes to: they are not copied, nor looked at."""
    return CheckedPayloads(array, is_own=True)


def checked_payload(payload: object) -> bytes:
    """Raises ConfigError, EntryTooLargeError."""
    checked = _as_bytes(payload)
    if len(checked) > MAX_ENTRY_BYTES:
        raise EntryTooLargeError(len(checked), MAX_ENTRY_BYTES)
    return checked


def checked_payloads(payloads: Payloads | CheckedPayloads) -> CheckedPayloads:
    """Raises ConfigError, EntryTooLargeError."""
    if isinstance(payloads, CheckedPayloads):
        return payloads
    checked = _of_array(payloads) if isinstance(payloads, (pa.Array, pa.ChunkedArray)) else _of_sequence(payloads)
    if len(checked) == 0:
        raise ConfigError("payloads", [], "append at least one entry")
    largest = int(checked.sizes.max())
    if largest > MAX_ENTRY_BYTES:
        raise EntryTooLargeError(largest, MAX_ENTRY_BYTES)
    return checked


def taken_payload(payload: Any) -> Any:
    """For calls whose arguments are checked later than they are made, as those of coroutines: memory that may change is copied,
    all else stays as it is."""
    return _as_bytes(payload) if isinstance(payload, _BYTES) else payload


def taken_payloads(payloads: Any) -> Any:
    """As ``taken_payload``, for those of many entries."""
    if isinstance(payloads, (pa.Array, pa.ChunkedArray)) and _is_binary(payloads.type) and not payloads.null_count:
        return _of_array(payloads).owned()
    return list(map(taken_payload, payloads)) if isinstance(payloads, list) else payloads


def _of_sequence(payloads: object) -> CheckedPayloads:
    if isinstance(payloads, (str, *_BYTES)) or not isinstance(payloads, Sequence):
        raise ConfigError("payloads", payloads, "it must be a sequence of bytes, one for each entry")
    return own_payloads(
        binaries(payloads if set(map(type, payloads)) <= {bytes} else [_as_bytes(payload) for payload in payloads])
    )


def _of_array(payloads: pa.Array | pa.ChunkedArray) -> CheckedPayloads:
    if not _is_binary(payloads.type):
        raise ConfigError("payloads", State(f"an array of {payloads.type}"), "it must be an array of binary")
    if payloads.null_count:
        raise ConfigError(
            "payloads", State(f"an array with {payloads.null_count} nulls"), "an entry's payload may be empty, not null"
        )
    if payloads.type != pa.binary() or isinstance(payloads, pa.ChunkedArray):
        _check_whole(payloads)  # Arrow copies without a look at where the bytes are
    array = _as_one(payloads) if isinstance(payloads, pa.ChunkedArray) else payloads
    try:
        array = array if array.type == pa.binary() else array.cast(pa.binary())
    except pa.ArrowInvalid as problem:
        raise ConfigError(
            "payloads", State(f"an array of {len(array)} entries"), f"they do not fit into one call ({problem})"
        ) from None
    return CheckedPayloads(_with_own_offsets(array), is_own=False)


def _check_whole(payloads: pa.Array | pa.ChunkedArray) -> None:
    try:
        payloads.validate(full=True)
    except pa.ArrowException as problem:
        raise ConfigError(
            "payloads", State(f"an array of {len(payloads)} entries"), f"its buffers do not fit together ({problem})"
        ) from None


def _as_one(payloads: pa.ChunkedArray) -> pa.Array:
    if payloads.num_chunks == 0:
        return binaries([])
    return payloads.chunk(0) if payloads.num_chunks == 1 else pa.concat_arrays(payloads.chunks)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _with_own_offsets(array: pa.BinaryArray) -> pa.BinaryArray:
    """The same bytes behind a copy of the offsets, which lie within them."""
    if not len(array):
        return array
    offsets, data = payload_offsets(array).copy(), array.buffers()[2]
    size = 0 if data is None else data.size
    if offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets) < 0).any():
        raise ConfigError("payloads", State(f"an array of {len(array)} entries"), f"its offsets do not fit its {size} bytes")
    return _array(offsets, b"" if data is None else data)


def _copied(array: pa.BinaryArray) -> pa.BinaryArray:
    offsets, data = payload_offsets(array), payloads_in_a_row(array)
    own = pa.allocate_buffer(len(data))  # kept for the next copy; what Python allocates costs a page fault for every 4 KiB
    memoryview(own).cast("B")[:] = data.cast("B")
    return _array(offsets - offsets[0], own)


def _array(offsets: npt.NDArray[np.int32], data: bytes | pa.Buffer) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data) if isinstance(data, bytes) else data]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _as_bytes(payload: object) -> bytes:
    if not isinstance(payload, _BYTES):
        raise ConfigError("a payload", payload, "it must be bytes")
    return payload.to_pybytes() if isinstance(payload, pa.Buffer) else bytes(payload)
