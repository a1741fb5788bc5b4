"""How much memory this process has, and giving back what it does not use."""

from __future__ import annotations

import ctypes
from pathlib import Path

from bk_spark.config import MIB

KEPT_BYTES = 64 * MIB
"""What the C library keeps of freed memory at the end of each of its heaps: a sync queue full of messages."""

LARGEST_KEPT_BYTES = 32 * MIB
"""Larger pieces are mapped, and unmapped when freed. glibc takes no more; the largest message is 17 MiB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not tell, which is everywhere but on Linux."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def keep_freed() -> None:
    """Have the C library keep what is freed for what comes next. Nothing where its allocator cannot.

    By itself it returns the memory of each large message and takes it anew for the next one, which costs a page fault for
    every 4 KiB: a sixth of what a bookie takes of the processor under large adds, a tenth of what a reader takes. For processes
    that are ours: bookies and Spark's workers, never an application that merely has a client.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)


def give_back() -> None:
    """Return to the system what was freed: the C library keeps some of it otherwise. Nothing where its allocator cannot.

    Takes up to some tens of milliseconds, without Python's lock.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
