"""Compaction by key: a log with keys keeps the newest row of each, and gives back what older ones took.

========== ===================================================================
plan.py    which ledgers are old enough, and which lanes are compacted together
share.py   which rows of some lanes stay, with the places of their row numbers
compact.py does it without Spark, and commits; a Spark job has ``datasource/jobs``
========== ===================================================================

Protocol and crash matrix: DESIGN.md, "Compaction by key". Imports ``log/rows`` and ``log/cleanup``. Begin with ``plan.py``.
"""
