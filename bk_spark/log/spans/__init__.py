"""Reads spans, the ledgers that a compaction by key made, in the order of their row numbers.

============== =================================================================
span_handle.py a span as streams read it, in the place of the handle of a ledger
merged.py      rows of several lanes in one order
============== =================================================================

What a span is: ``log/stored/by_key/spans.py``. Imports ``log/tier``. Begin with ``span_handle.py``.
"""
