"""Which copies in object stores can be read, and reading one. The layout is in ``bk_spark.pulsar.offloaded``.

An index names the first entry of each block, and entries have no other index: whoever wants one in the middle reads its block
up to there. Places that were passed are kept, so that a search by halving reads a block about once.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bk_spark.config import KIB, MIB
from bk_spark.entries.batch import READ_SCHEMA
from bk_spark.pulsar.offloaded import (
    ENTRY_HEAD_BYTES,
    HEAD_BYTES,
    MAX_INDEX_BYTES,
    Block,
    DamagedCopyError,
    Entries,
    check_head,
    entry_problem,
    parse_entries,
    parse_index,
)
from bk_spark.pulsar.stored import OffloadedCopy, StoredLedger

if TYPE_CHECKING:
    from bk_spark.files.file_store import FileStore

SCHEMA = pa.schema([READ_SCHEMA.field("entry_id"), READ_SCHEMA.field("payload")])

FIRST_READ_BYTES, READ_BYTES = 256 * KIB, 4 * MIB
"""Asked of the store at first, for a search wants one entry; and later on. A request costs some 20 ms whatever it brings."""

PLACE_BYTES = MIB
"""Between two places that are kept: a ledger of 2 GiB has 2,000 of them."""

_SCHEMES = {"aws-s3": "s3", "s3": "s3", "google-cloud-storage": "gs"}
_DRIVERS = "aws-s3, S3 and google-cloud-storage"
_BY_BROKERS = "read it through a broker"


def refusal(copy: OffloadedCopy) -> str | None:
    """Why a copy cannot be read here; None if it can be tried."""
    offloaded = f"Pulsar offloaded it to '{copy.driver}' and deleted it on the bookies"
    if copy.driver.lower() not in _SCHEMES:
        return f"{offloaded}, and only copies of {_DRIVERS} can be read here: {_BY_BROKERS}"
    if copy.uid is None:
        return f"{offloaded} by its streaming offload, whose layout is not understood here: {_BY_BROKERS}"
    if not copy.bucket:
        return f"{offloaded}, and did not note the bucket: {_BY_BROKERS}"
    return None


def address_of(copy: OffloadedCopy, ledger_id: int) -> str:
    """Of the data object of a copy that is not refused."""
    return f"{_SCHEMES[copy.driver.lower()]}://{copy.bucket}/{copy.uid}-ledger-{ledger_id}"


def properties_of(copy: OffloadedCopy, endpoint: str | None) -> dict[str, str]:
    """Of the object store, for ``FileStore``. ``endpoint``: in place of the one that Pulsar noted."""
    given = {"s3.endpoint": endpoint or copy.endpoint, "s3.region": copy.region}
    return {key: value for key, value in given.items() if value}


class CopiedLedger:
    """The copy of one ledger, opened. One thread uses it.

    All methods raise DamagedCopyError, FileGoneError, and StorageError where the store does not answer or refuses.
    """

    def __init__(self, store: FileStore, address: str, listed: StoredLedger) -> None:
        self._store = store
        self._address = address
        self._index = parse_index(self._whole(f"{address}-index"))
        if (self._index.last_entry_id + 1, self._index.length) != (listed.entries, listed.size):
            found = f"{self._index.last_entry_id + 1} entries of {self._index.length} bytes"
            raise DamagedCopyError(f"its index has {found}, and Pulsar lists {listed.entries} of {listed.size}")
        self._file = store.open_input(address)
        if self._file.size() != self._index.data_bytes:
            raise DamagedCopyError(f"it has {self._file.size()} bytes, and its index says {self._index.data_bytes}")
        self._firsts = [block.first_entry_id for block in self._index.blocks]
        self._checked: set[int] = set()
        """The blocks whose head was looked at."""
        self._places = [(block.first_entry_id, block.begin + self._index.head_bytes) for block in self._index.blocks]
        """Entries, and where they begin, ascending."""

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries in SCHEMA, first and last inclusive."""
        last = min(last, self._index.last_entry_id)
        while first <= last:
            block = self._index.blocks[bisect_right(self._firsts, first) - 1]
            self._check_head(block)
            until = min(last, block.last_entry_id)
            yield from self._in_block(block, first, until)
            first = until + 1

    def _in_block(self, block: Block, first: int, last: int) -> Iterator[pa.RecordBatch]:
        entry_id, at = self._places[bisect_right(self._places, (first, self._index.data_bytes)) - 1]
        data, size, wanted = b"", FIRST_READ_BYTES, ENTRY_HEAD_BYTES
        while entry_id <= last:
            data += self._bytes(at + len(data), min(max(size, wanted - len(data)), block.end - at - len(data)))
            found = parse_entries(data, at, entry_id, block)
            batch = _batch(data, found, first, last)
            if batch is not None:
                yield batch
            entry_id, at, data, wanted = found.behind, at + found.used, data[found.used :], found.wanted
            size = min(4 * size, READ_BYTES)
            self._keep_place(entry_id, at, block)

    def _keep_place(self, entry_id: int, at: int, block: Block) -> None:
        before = self._places[bisect_right(self._places, (entry_id, at)) - 1]
        if entry_id <= block.last_entry_id and at - before[1] >= PLACE_BYTES:
            insort(self._places, (entry_id, at))

    def _check_head(self, block: Block) -> None:
        if block.begin not in self._checked:
            check_head(self._bytes(block.begin, HEAD_BYTES), self._index, block)
            self._checked.add(block.begin)

    def _bytes(self, at: int, count: int) -> bytes:
        found = self._store.read_at(self._address, self._file, at, count)
        if len(found) < count:
            raise DamagedCopyError(f"it ends at byte {at + len(found)}, and its index says {self._index.data_bytes}")
        return found

    def _whole(self, address: str) -> bytes:
        file = self._store.open_input(address)
        if file.size() > MAX_INDEX_BYTES:
            raise DamagedCopyError(f"its index has {file.size()} bytes, the maximum is {MAX_INDEX_BYTES}")
        return self._store.read_at(address, file, 0, file.size())


def _batch(data: bytes, entries: Entries, first: int, last: int) -> pa.RecordBatch | None:
    """Those of the entries that are wanted. Raises DamagedCopyError."""
    first = max(first, entries.first_entry_id)
    places = entries.places[first - entries.first_entry_id : last - entries.first_entry_id + 1]
    if not places:
        return None
    view = memoryview(data)
    for entry_id, (begin, end) in enumerate(places, start=first):
        problem = entry_problem(view[begin:end])
        if problem:
            raise DamagedCopyError(f"its entry {entry_id} is not what was written: {problem}")
    ids = np.arange(first, first + len(places), dtype=np.int64)
    offsets = np.cumsum([0, *(end - begin for begin, end in places)], dtype=np.int32)
    payload = b"".join(view[begin:end] for begin, end in places)
    columns = [
        pa.Int64Array.from_buffers(pa.int64(), len(ids), [None, pa.py_buffer(ids)]),
        pa.BinaryArray.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(payload)]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
