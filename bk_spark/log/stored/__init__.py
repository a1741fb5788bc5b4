"""What the metadata store holds of a log: paths and values, and how the ledger list of a version is read from them.

Imports only the metadata store. Begin with ``values.py``.
"""
