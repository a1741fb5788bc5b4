"""Where every batch is: one row a batch in SQLite, with checksums and tallies that reveal what is damaged or lost.

Imports ``log_files`` for positions and marks. Begin with ``ledger_index.py``, the interface; ``values.py`` has the values in an
index, ``sqlite_index.py`` stores them.
"""
