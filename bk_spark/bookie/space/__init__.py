"""Frees space: deletes ledgers that are gone or over-replicated, and compacts entry logs that are mostly dead.

Imports the storage and the metadata store. Begin with ``gc_run.py``.
"""
