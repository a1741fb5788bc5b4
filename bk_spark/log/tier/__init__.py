"""Reads the rows of ledgers that lie in a log's tier.

Imports ``log_store``, the client's ledgers and rows. Begin with ``opener.py``, then ``tiered_handle.py``. What writes a tier is
in ``bk_spark/lake``. Ref: DESIGN.md, "Lake".
"""
