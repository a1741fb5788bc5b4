"""Journals and entry logs: their files consist of records; here they are written, scanned and replayed.

Imports ``disk`` and ``directories``. Begin with ``record.py``, the layout of a record, then ``all_log_files.py``, which
holds all journals and entry logs of a bookie.
"""
