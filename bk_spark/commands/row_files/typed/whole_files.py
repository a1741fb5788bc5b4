"""Whether a Parquet or an Arrow file is one, from its first byte to its last.

Both have a footer at their end, which names places from their beginning. Of two files in one, the last footer names places in
the second, and a reader would find rows of the first there.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

ARROW_MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
"""Before each message of a stream; those of before Arrow 0.15 have none."""
_PARQUET_MAGIC = b"PAR1"
_BLOCK_BYTES = 4 << 20
_MAX_PADDING = 64
"""To which Arrow's writers align, and more than the mark of an end takes."""
_ARROW_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
_DICTIONARIES, _BATCHES = 2, 3
"""Fields of an Arrow file's footer, each a vector of blocks."""


def open_parquet(opened: Any) -> parquet.ParquetFile:
    """Raises ValueError unless ``opened`` begins with the file whose footer ends it.

    Bytes between the pages and the footer are indexes, in a file of its own. What is before it in another file is among them,
    as far as the footer knows: only so many bytes are searched for the place where two files meet.
    """
    file = parquet.ParquetFile(opened, page_checksum_verification=True)
    size = opened.seek(0, os.SEEK_END)
    opened.seek(0)
    if opened.read(len(_PARQUET_MAGIC)) != _PARQUET_MAGIC:
        raise ValueError("its first bytes are not those of a Parquet file")
    unknown = size - 8 - file.metadata.serialized_size - _end_of_pages(file.metadata)
    place = _meeting_place(opened, unknown + len(_PARQUET_MAGIC))
    if place is not None:
        raise ValueError(f"one Parquet file ends at its byte {place}, and another begins: append each by itself")
    return file


def open_arrow(opened: Any) -> pa.RecordBatchFileReader:
    """Raises ValueError unless the rows that the footer of the Arrow file names end where the footer begins."""
    file = pa.ipc.open_file(opened)
    footer_end = opened.seek(-len(ARROW_MAGIC) - 4, os.SEEK_END)
    footer_at = opened.seek(footer_end - int.from_bytes(opened.read(4), "little"))
    end = max(_end_of_blocks(opened.read(footer_end - footer_at)), _end_of_schema(opened))
    if footer_at - end > _MAX_PADDING:
        raise ValueError(f"the rows of its footer end at byte {end} of {footer_at}: if it is several files in one, append each")
    return file


def _end_of_pages(metadata: parquet.FileMetaData) -> int:
    """Of the last row group."""
    end = len(_PARQUET_MAGIC)
    if metadata.num_row_groups:
        group = metadata.row_group(metadata.num_row_groups - 1)
        for place in range(group.num_columns):
            chunk = group.column(place)
            start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            end = max(end, min(start, chunk.data_page_offset) + chunk.total_compressed_size)
    return end


def _meeting_place(opened: Any, size: int) -> int | None:
    """In the first ``size`` bytes: where a Parquet file begins behind the end of another."""
    opened.seek(0)
    at, block = 0, b""
    while at < size and (more := opened.read(min(_BLOCK_BYTES, size - at))):
        kept = block[1 - 2 * len(_PARQUET_MAGIC) :]
        block = kept + more
        found = block.find(2 * _PARQUET_MAGIC)
        if found >= 0:
            return int(at - len(kept) + found + len(_PARQUET_MAGIC))
        at += len(more)
    return None


def _end_of_schema(opened: Any) -> int:
    """Of the first message of an Arrow file, which all have."""
    at = len(ARROW_MAGIC) + 2
    opened.seek(at)
    start = opened.read(8)
    is_marked = start.startswith(CONTINUATION)
    length = int.from_bytes(start[4:] if is_marked else start[:4], "little")
    return int(at + (8 if is_marked else 4) + length)


def _end_of_blocks(footer: bytes) -> int:
    """Of what an Arrow file's footer, a table of FlatBuffers that Arrow has checked, names last."""
    root = _number(footer, 0, 4)
    fields = root - int.from_bytes(footer[root : root + 4], "little", signed=True)
    end = 0
    for place in (_DICTIONARIES, _BATCHES):
        slot = 4 + 2 * place
        offset = _number(footer, fields + slot, 2) if slot < _number(footer, fields, 2) else 0
        if offset:
            vector = root + offset + _number(footer, root + offset, 4)
            blocks = np.frombuffer(footer, _ARROW_BLOCK, _number(footer, vector, 4), vector + 4)
            end = max(end, int((blocks["offset"] + blocks["metadata"] + blocks["body"]).max(initial=0)))
    return end


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
