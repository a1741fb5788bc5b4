"""The storage engine: put, sync, read, checkpoint and replay, over the log files and the index.

Imports ``log_files`` and ``index``. Begin with ``ledger_storage.py``; ``open_storage.py`` opens it and replays the log files.
"""
