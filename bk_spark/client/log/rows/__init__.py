"""Rows of a log without Spark: Arrow in, Arrow out.

Imports the rest of ``client/log``, and the package ``rows``, which has the encoding. Begin with ``read_rows.py``.
"""
