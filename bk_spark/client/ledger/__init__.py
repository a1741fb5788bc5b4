"""Handles on single ledgers, as applications hold them, and the queues between their threads and the event loop.

Imports ``driver`` and ``protocol``. Begin with ``write_handle.py`` and ``read_handle.py``.
"""
