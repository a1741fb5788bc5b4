"""Spark jobs over logs and ledgers: ``log compact`` and ``replicate``.

Imports the data source and the client. Begin with ``compact_log.py``; ``spark_job.py`` is what both jobs share.
"""
