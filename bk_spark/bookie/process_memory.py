"""How much memory this process has, and giving back what it does not use."""

from __future__ import annotations

import ctypes
from pathlib import Path

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not tell, which is everywhere but on Linux."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def give_back() -> None:
    """Return to the system what was freed: the C library keeps it otherwise. Nothing where its allocator cannot.

    Takes up to some tens of milliseconds, without Python's lock.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
