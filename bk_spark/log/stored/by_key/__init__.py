"""What a log stores of a compaction by key: how it is to be done, and the ledgers that one made.

Imports ``log/stored``. Begin with ``spans.py``.
"""
