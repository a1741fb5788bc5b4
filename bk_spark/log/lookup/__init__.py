"""Looks rows up by their keys, in logs with keys: the newest row of a key.

Imports ``log.rows``, and what that imports. Begin with ``lookup.py``. Ref: DESIGN.md, "The newest row of a key".
"""
