"""Which bookie the disks belong to: its id, the cookies on its disks and in the metadata store, and its boot numbers.

Imports ``disk``, ``directories``, the index's generation and the metadata store. Begin with ``identity.py``.
"""
