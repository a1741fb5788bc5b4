"""Conditions on rows (option ``where``): parsing them, skipping entries by statistics, filtering rows.

Imports ``rows``. Begin with ``condition.py``.
"""
