"""Where every batch is: one row a batch in SQLite, with checksums and tallies that show what is damaged or lost.

Imports ``logs`` for positions and marks. Begin with ``ledger_index.py``, the interface; ``rows.py`` says what is
kept, ``sqlite_index.py`` keeps it.
"""
