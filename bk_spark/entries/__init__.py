"""Batches of entries, and the checksums and digests that protect them.

Imports ``config`` and ``quorum``. Begin with ``batch.py``.
"""
