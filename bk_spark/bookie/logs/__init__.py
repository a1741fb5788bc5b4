"""Journals and entry logs: files of records, how they are written, scanned and replayed.

Imports ``disk`` and ``directories``. Begin with ``record.py``, the layout of a record, then ``all_logs.py``, which
holds all logs of a bookie.
"""
