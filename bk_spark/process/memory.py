"""Measures this process's resident memory, and controls what the C library and Arrow keep of freed memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from bk_spark.config import MIB

KEPT_BYTES = 64 * MIB
"""How much freed memory the C library keeps at the end of each of its heaps: a sync queue full of messages."""

LARGEST_KEPT_BYTES = 32 * MIB
"""Larger allocations are mapped, and unmapped when freed. glibc's maximum; the largest message is 17 MiB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 on systems other than Linux."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def keep_freed() -> None:
    """Have the C library keep freed memory for reuse. Does nothing where its allocator cannot.

    By default it returns the memory of each large message and allocates it anew for the next one, which costs a page fault for
    every 4 KiB: a sixth of a bookie's processor time under large adds, a tenth of a reader's. Call it only in our own processes
    (bookies, Spark's workers), never in an application that merely has a client.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)


def have_arrow_give_back() -> None:
    """Have Arrow take its buffers from jemalloc, which returns freed memory to the system. Does nothing without it.

    Arrow's default allocator keeps what each thread has freed for that thread: with the hundred threads of a busy gateway,
    seven times what is in use. The user's own choice, ``ARROW_DEFAULT_MEMORY_POOL``, stays.
    """
    import pyarrow as pa  # here, since Spark's look-up of the format, which has to be light, imports this module

    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def give_back() -> None:
    """Return freed memory that the C library keeps to the system. Does nothing where its allocator cannot.

    Takes up to some tens of milliseconds, without Python's lock.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
