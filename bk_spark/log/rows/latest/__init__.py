"""Reads of a log with ``view="latest"``: the newest row of each key.

========= ==========================================================================
asked.py  what the user asks for
view.py   the same, bound to the key columns of a version of a log
chosen.py which rows of some stretches are the newest ones
shares.py which lanes are read together
reader.py reads them without Spark
========= ==========================================================================

Imports ``log/rows``. Begin with ``view.py``.
"""
