"""Files on disks and in object stores, beside ledgers: those of a log's tier, and copies of a topic's ledgers.

Imports errors. Begin with ``file_store.py``, which is all.
"""
