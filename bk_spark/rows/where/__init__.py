"""Conditions on rows (``where``): parsed, compared with statistics, and applied.

Imports ``rows``. Begin with ``condition.py``.
"""
