"""Space given back: deleted and over-replicated ledgers are collected, and entry logs that are mostly dead are compacted.

Imports the storage and the metadata store. Begin with ``gc_run.py``, one run; ``gc_thread.py`` starts them.
"""
