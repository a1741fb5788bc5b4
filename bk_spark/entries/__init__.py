"""Batches of entries, and the checksums and digests that protect them.

``rate.py`` limits how fast batches are copied and checked. It is here because client and bookie may both import this package.

Imports ``config`` and ``quorum``. Begin with ``batch.py``.
"""
