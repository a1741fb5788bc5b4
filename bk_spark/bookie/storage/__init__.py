"""The storage engine: put, sync, read, checkpoint and replay over logs and index.

Imports ``logs`` and ``index``. Begin with ``ledger_storage.py``; ``open_storage.py`` opens it and replays.
"""
