"""What goes from logs, and when: retention, vacuum, old records, and what killed jobs left behind.

Imports ``log_store`` and what lies below it; never ``leader``. Begin with ``vacuum.py``.
"""
