"""Keys of rows: which payloads may hold one, and in which row it is. In which lane it is, ``rows/lanes.py`` says.

Imports ``lanes`` and ``statistics`` of ``bk_spark.rows``. Begin with ``key_filter.py``.
"""
