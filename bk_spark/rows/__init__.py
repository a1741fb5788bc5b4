"""Rows as payloads of entries: codec, statistics, and gathering of small batches. Without pyspark.

Imports ``entries`` and ``config``. Begin with ``codec.py``.
"""
