"""Rows of a log without Spark: Arrow in, Arrow out.

Imports the rest of ``bk_spark.log``, and the package ``bk_spark.rows``, which has the encoding. Begin with ``read_rows.py``.
"""
