"""Deletes what logs no longer need: vacuum, old records, orphans; and plans compactions.

Imports ``log_store`` and what lies below it; never ``leader``. Begin with ``vacuum.py``.
"""
