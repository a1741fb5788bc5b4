"""Reads an Arrow stream, and those that follow it in the same file or pipe, up to the last byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bk_spark.commands.row_files.typed.whole_files import CONTINUATION

_MAX_METADATA_BYTES = 128 << 20
"""Of one message of a stream. Any four characters of a text are a larger number."""
_PIECE_BYTES = 16 << 20
"""That are read at once: a length that is wrong is not believed."""


class ArrowStreams:
    """``schema`` is that of the first stream, and all have its columns. Raises ValueError and Arrow's errors."""

    def __init__(self, opened: Any) -> None:
        self._bytes = _Bytes(opened)
        start = self._bytes.peek(8)
        if not start:
            raise ValueError("it is empty, and no Arrow stream is")
        if not _begins_stream(start):
            raise ValueError(f"it begins with {start!r}, as no Arrow stream does: name another format by --format")
        self._reader = self._next_reader()
        self.schema: pa.Schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Raises ValueError unless the last byte is the last of a stream."""
        yield from self._reader
        self._check_end()
        while start := self._bytes.peek(8):
            if not _begins_stream(start):
                raise ValueError(f"{start!r} follows the end of its Arrow stream, which begins no other")
            reader = self._next_reader()
            if not _columns(reader.schema).equals(_columns(self.schema), check_metadata=True):
                raise ValueError(f"a stream with other columns follows the first: {', '.join(map(_shown, reader.schema))}")
            yield from reader
            self._check_end()

    def _next_reader(self) -> Any:
        return pa.ipc.open_stream(pa.PythonFile(self._bytes, "r"))

    def _check_end(self) -> None:
        """The mark is a length of zero: the bytes that Arrow read last."""
        if self._bytes.last != b"\0\0\0\0":
            raise ValueError("it ends without the mark of an Arrow stream's end: the program that wrote it was perhaps cut off")


class _Bytes(io.RawIOBase):
    """Bytes that are read once. ``last`` is what the last call found."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._held = b""
        self.last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """``size`` bytes unless the end comes before."""
        pieces, found = [self._held[:size]], len(self._held[:size])
        self._held = self._held[size:]
        while found < size and (piece := self._opened.read(min(size - found, _PIECE_BYTES))):
            pieces.append(piece)
            found += len(piece)
        self.last = b"".join(pieces)
        return self.last

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay the next."""
        self._held = self.read(size)
        return self._held


def _begins_stream(start: bytes) -> bool:
    """With a message: a mark, if it is not old, and the length of what tells its kind."""
    is_marked = start.startswith(CONTINUATION)
    length = int.from_bytes(start[4:] if is_marked else start[:4], "little", signed=True)
    return len(start) == 8 and 0 < length < _MAX_METADATA_BYTES and (is_marked or length % 4 == 0)


def _columns(schema: pa.Schema) -> pa.Schema:
    """Without what a program says of the rows of one stream."""
    return schema.remove_metadata()


def _shown(field: pa.Field) -> str:
    return f"'{field.name}' {field.type}"
