"""Streams of single ledgers, without a log. Batch reads of ledgers are in ``datasource/read/reader.py``.

Imports what reads of logs share. Begin with ``stream.py``, which Spark calls; ``tail.py`` says how far it can read.
"""
