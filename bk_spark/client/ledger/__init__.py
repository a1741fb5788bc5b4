"""Handles on single ledgers, which applications hold, and the queues between application threads and the event loop.

Imports ``driver`` and ``protocol``. Begin with ``write_handle.py`` and ``read_handle.py``.
"""
