"""What stands in the metadata store for a log: paths, values, and how the list of ledgers of a version is read.

Imports the metadata store alone. Begin with ``values.py``.
"""
