"""Rows as payloads of entries: their encoding, statistics, and the joining of small batches. Without pyspark.

Imports ``entries`` and ``config``. Begin with ``codec.py``.
"""
