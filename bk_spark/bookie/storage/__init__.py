"""The storage engine: put, sync, read, checkpoint and replay, over the logs and the index.

Imports ``logs`` and ``index``. Begin with ``ledger_storage.py``; ``open_storage.py`` opens it and replays the logs.
"""
