"""Batches of keys that wait on a disk, in a file that never has a name.

The kernel frees its space when the process lets go of it: also after an interrupt, a kill, or when nobody reads on.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from bk_spark.errors import NotOpenedError, StorageError

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_BUFFER_BYTES = 256 * 1024
"""Arrow writes a batch in many small pieces."""
_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class SpilledBatches:
    """Batches of one schema: first all are written, then read. Raises StorageError, and NotOpenedError without a descriptor."""

    def __init__(self, schema: pa.Schema) -> None:
        with _told():
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=_BUFFER_BYTES, prefix="bk_spark-keys-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, schema, options=_OPTIONS)

    def write(self, batch: pa.RecordBatch) -> None:
        with _told():
            self._writer.write_batch(batch)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All of them, in their order, once. The file ends behind the last one."""
        with self._file:
            with _told():
                self._writer.close()
                self._file.seek(0)
                batches = pa.ipc.open_stream(self._file)
            while True:
                with _told():
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        what = f"a file in {tempfile.gettempdir()} for the keys of a read with view=latest, which do not fit into memory,"
        if problem.errno in _NONE_LEFT:
            raise NotOpenedError(what, str(problem)) from problem
        remedy = "make room there, name another directory in the variable TMPDIR, or read fewer lanes at once"
        raise StorageError(what, f"{problem}: {remedy}") from problem
