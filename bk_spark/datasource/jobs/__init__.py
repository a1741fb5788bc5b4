"""Spark jobs over logs and ledgers: ``log compact`` and ``replicate``.

Imports the data source and the client. Begin with ``compaction.py``.
"""
