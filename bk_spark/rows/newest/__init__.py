"""The newest row of each key: which rows of many are the last ones of theirs, in bounded memory.

=============== ==================================================================
newest_rows.py  groups rows by key, and keeps the number of the last one of each
key_hash.py     puts keys into parts, where one memory does not hold all of them
spilled.py      the parts, in files without a name
=============== ==================================================================

Imports ``rows``. Begin with ``newest_rows.py``.
"""
